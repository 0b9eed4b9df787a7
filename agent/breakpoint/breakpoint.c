#include "agent/breakpoint/breakpoint.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What is left of the words. */
struct words {
    const char *at, *end;
};

/* The next one: `size` bytes and a NUL. False: there is no such. */
static bool take(struct words *words, size_t size, const char **out)
{
    if (size >= (size_t)(words->end - words->at) || memchr(words->at, 0, size) || words->at[size])
        return false;
    *out = words->at;
    words->at += size + 1;
    return true;
}

/* Several, `size` bytes with their NULs. */
static bool take_several(struct words *words, size_t size, uint32_t count, const char **out)
{
    const char *end = words->at + size;

    if (size > (size_t)(words->end - words->at))
        return false;
    *out = words->at;
    for (uint32_t i = 0; i < count; i++) {
        const char *nul = words->at < end ? memchr(words->at, 0, (size_t)(end - words->at)) : NULL;
        if (!nul || nul == words->at)
            return false;
        words->at = nul + 1;
    }
    return words->at == end;
}

static bool is_padding(const struct words *words)
{
    if (words->end - words->at > 7)
        return false;
    for (const char *at = words->at; at < words->end; at++)
        if (*at)
            return false;
    return true;
}

static bool take_words(struct breakpoint *self, const struct proto_breakpoint *entry)
{
    struct words words = {self->text, self->text + entry->size - sizeof *entry};
    const char *text;

    if (!take(&words, entry->text_size, &text) || !take(&words, entry->where_size, &self->where) ||
        !take(&words, entry->condition_size, &self->condition) ||
        !take_several(&words, entry->captures_size, entry->captures, &self->captures) ||
        !take(&words, entry->within_size, &self->within) || !is_padding(&words))
        return false;
    if (!entry->condition_size)
        self->condition = NULL;
    self->location = self->text + entry->location_at;
    self->location_size = entry->location_size;
    return true;
}

static const char *check_kind(const struct proto_breakpoint *entry)
{
    switch (entry->kind) {
    case BREAKPOINT_REMOVE:
        return entry->id || entry->where_size ? NULL : "which one is to be removed?";
    case BREAKPOINT_DISABLE:
    case BREAKPOINT_ENABLE: return entry->id ? NULL : "which one is to be switched?";
    case BREAKPOINT_LINE:
        return entry->line && entry->line <= INT32_MAX && entry->where_size
                   ? NULL
                   : "lines are counted from 1";
    case BREAKPOINT_WATCH_ADDRESS:
        if (entry->length != 1 && entry->length != 2 && entry->length != 4 && entry->length != 8)
            return "1, 2, 4 or 8 bytes can be watched";
        return entry->address % entry->length ? "the address must be a multiple of the length"
                                              : NULL;
    case BREAKPOINT_RAISE:
    case BREAKPOINT_NAN:
    case BREAKPOINT_HOOK: return NULL;
    case BREAKPOINT_FUNCTION:
    case BREAKPOINT_RETURN:
    case BREAKPOINT_WATCH: return entry->where_size ? NULL : "where?";
    default: return "this agent doesn't know that kind of location";
    }
}

/* NULL: nothing is wrong. */
static const char *check(const struct proto_breakpoint *entry, size_t left)
{
    if (entry->size % 8 || entry->size < sizeof *entry || entry->size > left)
        return "it is cut off";
    if (entry->text_size > PROTO_BREAKPOINT_TEXT_MAX ||
        entry->where_size > PROTO_BREAKPOINT_TEXT_MAX ||
        entry->condition_size > PROTO_BREAKPOINT_TEXT_MAX ||
        entry->within_size > PROTO_BREAKPOINT_TEXT_MAX ||
        entry->captures_size > PROTO_BREAKPOINT_TEXT_MAX + PROTO_CAPTURES_MAX)
        return "it is too long";
    if (entry->captures > PROTO_CAPTURES_MAX)
        return "too many captures";
    if (entry->action > BREAKPOINT_STOP || entry->route > ROUTE_PTRACE ||
        entry->flags &
            ~(BREAKPOINT_HERE | BREAKPOINT_DISABLED | BREAKPOINT_LEAVING | BREAKPOINT_ALL) ||
        (entry->flags & BREAKPOINT_LEAVING && !entry->within_size) ||
        ((entry->thread || entry->depth) && entry->kind != BREAKPOINT_WATCH) ||
        (entry->depth && !entry->thread) ||
        (entry->within_size && entry->kind != BREAKPOINT_RAISE) ||
        (!entry->text_size && !breakpoint_is_change(entry->kind)))
        return "it makes no sense";
    if (entry->location_at > entry->text_size ||
        entry->location_size > entry->text_size - entry->location_at)
        return "its location is not in its text";
    if (entry->stop_ns > PROTO_STOP_MAX_NS)
        return "a thread is held for seven days at most";
    if (entry->id > INT32_MAX)
        return "its number is too large";
    return check_kind(entry);
}

static struct breakpoint *make(const struct proto_breakpoint *entry, const char *words)
{
    size_t size = entry->size - sizeof *entry;
    struct breakpoint *self = calloc(1, sizeof *self);

    if (self)
        self->text = malloc(size + 1);
    if (!self || !self->text) {
        free(self);
        return NULL;
    }
    memcpy(self->text, words, size);
    self->text[size] = '\0';
    self->refs = 1;
    self->id = entry->id;
    self->kind = entry->kind;
    self->action = entry->action;
    self->route = entry->route;
    self->line = entry->line;
    self->address = entry->address;
    self->length = entry->length;
    self->thread = entry->thread;
    self->depth = entry->depth;
    self->count = entry->count;
    self->after = entry->after;
    self->every = entry->every;
    self->stop_ns = entry->stop_ns ? entry->stop_ns : PROTO_STOP_NS;
    self->ncaptures = entry->captures;
    self->all = entry->flags & BREAKPOINT_ALL;
    self->leaving = entry->flags & BREAKPOINT_LEAVING;
    self->disabled = entry->flags & BREAKPOINT_DISABLED;
    self->planned.before = self->planned.disabled = self->disabled;
    return self;
}

int breakpoint_read(const char *data, size_t left, uint64_t here, struct breakpoint **out,
                    size_t *size, const char **why)
{
    struct proto_breakpoint entry;

    *why = "it is cut off";
    if (left < sizeof entry)
        return -EINVAL;
    memcpy(&entry, data, sizeof entry);
    *why = check(&entry, left);
    if (!*why && entry.flags & BREAKPOINT_HERE && !here)
        *why = "it is to live as long as an open file, and there is none";
    if (*why)
        return -EINVAL;
    struct breakpoint *self = make(&entry, data + sizeof entry);
    if (!self)
        return -ENOMEM;
    if (!take_words(self, &entry)) {
        breakpoint_unref(self);
        *why = "its words are not what it says";
        return -EINVAL;
    }
    if (entry.flags & BREAKPOINT_HERE)
        self->here = here;
    *out = self;
    *size = entry.size;
    return 0;
}

struct breakpoint *breakpoint_ref(struct breakpoint *breakpoint)
{
    __atomic_fetch_add(&breakpoint->refs, 1, __ATOMIC_RELAXED);
    return breakpoint;
}

void breakpoint_unref(struct breakpoint *breakpoint)
{
    if (!breakpoint || __atomic_sub_fetch(&breakpoint->refs, 1, __ATOMIC_ACQ_REL))
        return;
    free(breakpoint->text);
    free(breakpoint);
}

bool breakpoint_is_at(const struct breakpoint *breakpoint, const char *location)
{
    return strlen(location) == breakpoint->location_size &&
           memcmp(breakpoint->location, location, breakpoint->location_size) == 0;
}
