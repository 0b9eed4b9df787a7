#include "fs/breakpoint/request.h"

#include "agent/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/base/caret.h"
#include "fs/base/line.h"
#include "fs/base/ranges.h"
#include "fs/breakpoint/reader.h"

#include <errno.h>
#include <string.h>

void breakpoint_request_deinit(struct breakpoint_request *request)
{
    text_deinit(&request->text);
    free(request->lines);
    free(request->source);
    *request = (struct breakpoint_request){0};
}

/* ---- writing ---- */

/* Adds words with their NUL. Returns their size without that. */
static uint32_t add_words(struct text *out, struct words words)
{
    words_add(out, words);
    text_putc(out, 0);
    return (uint32_t)words.size;
}

/* What is about one in the set, or, of a removal, about those at a location. */
static void add_change(const struct breakpoint_text *b, struct proto_breakpoint *entry,
                       struct text *out)
{
    add_words(out, (struct words){0});
    size_t from = out->size;
    if (!b->id)
        breakpoint_text_location(b, out);
    entry->kind = b->remove     ? BREAKPOINT_REMOVE
                  : b->disabled ? BREAKPOINT_DISABLE
                                : BREAKPOINT_ENABLE;
    entry->where_size = (uint32_t)(out->size - from);
    text_putc(out, 0);
    add_words(out, (struct words){0});
    add_words(out, (struct words){0});
}

static void add_setting(const struct breakpoint_text *b, struct proto_breakpoint *entry,
                        struct text *out)
{
    _cleanup_(text_deinit) struct text location = TEXT_INIT;
    size_t from = out->size;

    entry->kind = (uint8_t)b->kind;
    entry->action = (uint8_t)b->action;
    entry->route = (uint8_t)b->route;
    entry->flags = (uint8_t)((b->here ? BREAKPOINT_HERE : 0) |
                             (b->disabled ? BREAKPOINT_DISABLED : 0) |
                             (b->leaving ? BREAKPOINT_LEAVING : 0) | (b->all ? BREAKPOINT_ALL : 0));
    entry->line = b->line;
    entry->address = b->address;
    entry->length = b->length;
    entry->count = b->count;
    entry->stop_ns = b->stop_ns;
    entry->location_at = (uint32_t)breakpoint_text_print(b, out);
    entry->text_size = (uint32_t)(out->size - from);
    text_putc(out, 0);
    breakpoint_text_location(b, &location);
    entry->location_size = (uint32_t)location.size;
    entry->where_size = add_words(out, b->where);
    entry->condition_size = add_words(out, b->condition);
    entry->captures = b->ncaptures;
    for (uint32_t i = 0; i < b->ncaptures; i++)
        entry->captures_size += add_words(out, b->captures[i]) + 1;
    entry->after = b->after;
    entry->every = b->every;
    entry->within_size = add_words(out, b->within);
    entry->thread = b->tid;
    entry->depth = b->depth;
}

static void add_entry(const struct breakpoint_text *b, struct proto_breakpoint *entry,
                      struct text *out)
{
    size_t at = out->size;

    *entry = (struct proto_breakpoint){.id = b->id};
    text_add(out, (const char *)entry, sizeof *entry);
    if (b->remove || b->ids.size)
        add_change(b, entry, out);
    else
        add_setting(b, entry, out);
    while (out->size % 8)
        text_putc(out, 0);
    if (out->error)
        return;
    entry->size = (uint32_t)(out->size - at);
    memcpy(out->data + at, entry, sizeof *entry);
}

/* ---- reading ---- */

static int complain(const char *line, size_t size, const struct complaint *what, struct text *why)
{
    text_puts(why, what->what);
    text_add_caret(why, line, size, what->at);
    return -EINVAL;
}

static int refuse_many(struct text *why)
{
    text_printf(why, "one write brings %d lines, or ids, at most: nothing of this one was done",
                PROTO_BREAKPOINTS_MAX);
    return -EFBIG;
}

static int add_line(struct breakpoint_request *request, const char *line, size_t size,
                    struct text *why)
{
    struct proto_breakpoint entry;
    struct breakpoint_text b;
    struct complaint wrong;

    int r = breakpoint_text_read(line, size, &b, &wrong);
    if (r < 0)
        return complain(line, size, &wrong, why);
    if (r == 0)
        return 0;
    if (request->n == PROTO_BREAKPOINTS_MAX)
        return refuse_many(why);
    r = ARRAY_GROW(request->lines, request->alloc, request->n + 1);
    if (r < 0)
        return r;
    bool sets = !b.remove && !b.ids.size;
    request->lines[request->n++] =
        (struct breakpoint_line){line, size, request->text.size, sets, b.ranks};
    request->sets |= sets;
    request->here |= b.here;
    request->has_ranks |= b.ranks.size > 0;
    struct words ids = b.ids;
    do {
        if (ids.size)
            breakpoint_text_next_id(&ids, &b.id);
        add_entry(&b, &entry, &request->text);
        if (++request->changes > PROTO_BREAKPOINTS_MAX)
            return refuse_many(why);
    } while (ids.size);
    if (entry.text_size > PROTO_BREAKPOINT_TEXT_MAX || entry.where_size > PROTO_BREAKPOINT_TEXT_MAX)
        return complain(line, size, &(struct complaint){line, "a line has at most 2000 bytes"},
                        why);
    return request->text.error;
}

int breakpoint_request_read(const char *lines, size_t size, struct breakpoint_request *out,
                            struct text *why)
{
    int r = 0;

    *out = (struct breakpoint_request){.source = malloc(size + 1)};
    if (!out->source)
        return -ENOMEM;
    if (size)
        memcpy(out->source, lines, size);
    lines = out->source;
    const char *end = lines + size;
    while (lines < end && r == 0) {
        const char *newline = memchr(lines, '\n', (size_t)(end - lines));
        size_t line = (size_t)((newline ? newline : end) - lines);
        if (size && lines == end - size && line_is(lines, line, "-- strict"))
            out->strict = true;
        else
            r = add_line(out, lines, line, why);
        lines += line + (newline != NULL);
    }
    return r;
}

/* ---- for some ranks ---- */

bool breakpoint_line_is_for(const struct breakpoint_line *line, int64_t rank)
{
    struct ranges ranges;
    const char *wrong;

    return !line->ranks.size ||
           (ranges_parse(line->ranks.text, line->ranks.size, &ranges, &wrong) &&
            ranges_have(&ranges, rank));
}

int breakpoint_request_for(const struct breakpoint_request *request, int64_t rank,
                           struct breakpoint_request *out)
{
    *out = (struct breakpoint_request){.strict = request->strict, .here = request->here};
    out->lines = calloc(request->n + 1, sizeof *out->lines);
    if (!out->lines)
        return -ENOMEM;
    for (size_t i = 0; i < request->n; i++) {
        const struct breakpoint_line *line = &request->lines[i];
        size_t end = i + 1 < request->n ? line[1].at : request->text.size;
        if (!breakpoint_line_is_for(line, rank))
            continue;
        out->lines[out->n] = *line;
        out->lines[out->n++].at = out->text.size;
        out->sets |= line->sets;
        text_add(&out->text, request->text.data + line->at, end - line->at);
    }
    return out->text.error;
}

/* ---- blaming ---- */

/* The byte of the line, if `byte` of what stands for it, behind the entry's
 * head, is one of an expression. */
static const char *find_byte(const struct breakpoint_text *b, const struct proto_breakpoint *entry,
                             uint64_t byte)
{
    uint64_t at = entry->text_size + 1;

    if (byte < at)
        return NULL;
    if (byte - at <= b->where.size && b->where.size)
        return b->where.text + (byte - at);
    at += entry->where_size + 1;
    if (byte >= at && byte - at <= b->condition.size && b->condition.size)
        return b->condition.text + (byte - at);
    at += entry->condition_size + 1;
    for (uint32_t i = 0; i < b->ncaptures && byte >= at; i++) {
        if (byte - at <= b->captures[i].size)
            return b->captures[i].text + (byte - at);
        at += b->captures[i].size + 1;
    }
    return NULL;
}

/* The n-th id of the line. */
static const char *find_id(const struct breakpoint_text *b, uint64_t n)
{
    struct words ids = b->ids;
    uint32_t id;

    while (n-- && breakpoint_text_next_id(&ids, &id))
        ;
    return ids.text;
}

void breakpoint_request_blame(const struct breakpoint_request *request, uint64_t byte,
                              struct text *why)
{
    const struct breakpoint_line *line = request->lines;
    struct proto_breakpoint entry;
    struct breakpoint_text b;
    struct complaint wrong;
    const char *at = NULL;

    if (!request->n || byte >= request->text.size)
        return;
    while (line + 1 < request->lines + request->n && line[1].at <= byte)
        line++;
    memcpy(&entry, request->text.data + line->at, sizeof entry);
    int r = breakpoint_text_read(line->line, line->size, &b, &wrong);
    if (r == 1 && b.ids.size)
        at = find_id(&b, (byte - line->at) / entry.size); /* all are of one size */
    else if (r == 1 && !b.remove && byte >= line->at + sizeof entry)
        at = find_byte(&b, &entry, byte - line->at - sizeof entry);
    text_add_caret(why, line->line, line->size, at ? at : line->line + strspn(line->line, " \t"));
}
