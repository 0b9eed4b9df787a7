/* Waits as somebody else tells them who has read them: numbers of fs/base/fields.h, behind all
 * strings. */
#include "agent/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/remote/waits/asked.h"
#include "fs/remote/waits/waits.h"

#include <errno.h>
#include <limits.h>

struct telling {
    struct fields fields;
    struct text strings; /* written: of the waits, and those that are static */
    char *words;         /* read: the same */
    size_t size;
};

/* ---- what is said ---- */

static void string_field(struct telling *t, uint32_t *string)
{
    FIELD(&t->fields, *string, 0, t->fields.out ? UINT32_MAX : (int64_t)t->size);
}

static void word_field(struct telling *t, const char **word)
{
    size_t at = 0;

    if (t->fields.out && *word) {
        at = t->strings.size;
        text_add(&t->strings, *word, strlen(*word) + 1);
    }
    FIELD(&t->fields, at, 0, t->fields.out ? UINT32_MAX : (int64_t)t->size);
    if (!t->fields.out)
        *word = at ? t->words + at : NULL;
}

/* One that there has to be. */
static void kind_field(struct telling *t, const char **word)
{
    word_field(t, word);
    if (!*word || !**word) {
        *word = "unknown";
        t->fields.error = -EPROTO;
    }
}

/* Processes are found here, whatever is said. */
static void actor_fields(struct telling *t, struct actor *actor)
{
    FIELD(&t->fields, actor->kind, ACTOR_THREAD, ACTOR_GONE);
    if (actor->kind == ACTOR_PROCESS)
        t->fields.error = -EPROTO;
    FIELD(&t->fields, actor->id, 0, INT_MAX);
    FIELD_ANY(&t->fields, actor->task);
    string_field(t, &actor->name);
}

static void place_fields(struct telling *t, struct wait_place *place)
{
    string_field(t, &place->func);
    string_field(t, &place->file);
    FIELD(&t->fields, place->line, 0, INT_MAX);
}

static void wait_fields(struct telling *t, const struct waits *waits, struct wait *wait)
{
    struct fields *fields = &t->fields;

    actor_fields(t, &wait->who);
    place_fields(t, &wait->place);
    kind_field(t, &wait->kind);
    word_field(t, &wait->call);
    word_field(t, &wait->does);
    kind_field(t, &wait->held);
    word_field(t, &wait->note);
    FIELD_ANY(fields, wait->address);
    string_field(t, &wait->name);
    FIELD(fields, wait->since_ns, WAITS_UNKNOWN_NS, INT64_MAX);
    FIELD(fields, wait->holders, 0, (int64_t)waits->nholders);
    FIELD(fields, wait->nholders, 0, (int64_t)waits->nholders - wait->holders);
    FIELD_BOOL(fields, wait->timed);
    FIELD(fields, wait->asleep, 0, (int64_t)waits->nasleep);
    uint32_t cycle = wait->cycle + 1; /* 0: in none */
    FIELD(fields, cycle, 0, (int64_t)waits->ncycles);
    wait->cycle = cycle - 1;
}

static void holder_fields(struct telling *t, struct wait_holder *holder)
{
    actor_fields(t, &holder->who);
    FIELD(&t->fields, holder->certainty, HELD_CERTAIN, HELD_LIKELY);
    place_fields(t, &holder->taken);
    FIELD(&t->fields, holder->since_ns, WAITS_UNKNOWN_NS, INT64_MAX);
    word_field(t, &holder->state);
}

static void thread_fields(struct telling *t, struct wait_thread *thread)
{
    FIELD(&t->fields, thread->tid, 0, INT_MAX);
    string_field(t, &thread->name);
    FIELD(&t->fields, thread->standing.kind, STANDS_NOT, SEEN_AWAITING);
    FIELD(&t->fields, thread->standing.ns, 0, INT64_MAX);
    FIELD_BOOL(&t->fields, thread->standing.at_least);
}

/* A circle: each has a holder, which waits in the next one. Its part of the links begins where that
 * of the one before ends, so that all together are no longer than these. */
static void cycle_fields(struct telling *t, const struct waits *waits, struct wait_cycle *cycle,
                         size_t *first)
{
    struct fields *fields = &t->fields;

    cycle->first = (uint32_t)*first;
    FIELD(fields, cycle->n, 1, (int64_t)(waits->nlinks - *first));
    *first += cycle->n;
    for (uint32_t i = 0; i < cycle->n && !fields->error; i++) {
        uint32_t *link = &waits->links[cycle->first + i];
        FIELD(fields, *link, 0, (int64_t)waits->n - 1);
        if (!fields->error && !waits->items[*link].nholders)
            fields->error = -EPROTO;
    }
    FIELD_BOOL(fields, cycle->likely);
    FIELD_BOOL(fields, cycle->timed);
}

/* Makes room for as many as are to be read. */
#define ROOM(t, array, alloc, n)                           \
 do {                                                      \
  if (!(t)->fields.out && ARRAY_GROW(array, alloc, n) < 0) \
   (t)->fields.error = -ENOMEM;                            \
 } while (0)

static void count_fields(struct telling *t, struct waits *waits)
{
    struct fields *fields = &t->fields;
    size_t threads_alloc = 0;

    FIELD(fields, waits->n, 0, WAITS_MAX);
    FIELD(fields, waits->nholders, 0, WAITS_MAX);
    FIELD(fields, waits->ncycles, 0, WAITS_CYCLES_MAX);
    FIELD(fields, waits->nlinks, 0, WAITS_MAX);
    FIELD(fields, waits->nasleep, 0, WAITS_MAX);
    FIELD(fields, waits->nthreads, 0, WAITS_MAX);
    FIELD_BOOL(fields, waits->cut);
    FIELD_BOOL(fields, waits->torn);
    ROOM(t, waits->items, waits->alloc, waits->n);
    ROOM(t, waits->holders, waits->holders_alloc, waits->nholders);
    ROOM(t, waits->cycles, waits->cycles_alloc, waits->ncycles);
    ROOM(t, waits->links, waits->links_alloc, waits->nlinks);
    ROOM(t, waits->asleep, waits->asleep_alloc, waits->nasleep);
    ROOM(t, waits->threads, threads_alloc, waits->nthreads);
}

static void waits_fields(struct telling *t, struct waits *waits)
{
    struct fields *fields = &t->fields;
    size_t links = 0, held = 0;

    count_fields(t, waits);
    for (size_t i = 0; i < waits->nholders && !fields->error; i++)
        holder_fields(t, &waits->holders[i]);
    for (size_t i = 0; i < waits->nasleep && !fields->error; i++) {
        blocking_fields(fields, &waits->asleep[i].blocking);
        FIELD_ANY(fields, waits->asleep[i].ran);
    }
    for (size_t i = 0; i < waits->n && !fields->error; i++) {
        wait_fields(t, waits, &waits->items[i]);
        held += waits->items[i].nholders;
    }
    if (held > waits->nholders) /* holders are of one wait each */
        fields->error = -EPROTO;
    for (size_t i = 0; i < waits->ncycles && !fields->error; i++)
        cycle_fields(t, waits, &waits->cycles[i], &links);
    for (size_t i = 0; i < waits->nthreads && !fields->error; i++)
        thread_fields(t, &waits->threads[i]);
}

/* ---- */

/* Strings end with 0 in memory, and with a newline where they are told. */
static void exchange(char *bytes, size_t size, char from, char to)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i] == from)
            bytes[i] = to;
}

int waits_write(struct waits *waits, struct text *out)
{
    _cleanup_(text_deinit) struct text numbers = TEXT_INIT;
    struct telling t = {.fields = {.out = &numbers}};

    if (waits->strings.size)
        text_add(&t.strings, waits->strings.data, waits->strings.size);
    else
        text_putc(&t.strings, '\0'); /* the string 0 */
    waits_fields(&t, waits);
    exchange(t.strings.data, t.strings.size, '\0', '\n');
    text_printf(out, "%zu ", t.strings.size);
    text_add(out, t.strings.data, t.strings.size);
    text_add(out, numbers.data, numbers.size);
    int r = t.strings.error ? t.strings.error : numbers.error ? numbers.error : out->error;
    if (t.strings.cut || numbers.cut || out->cut)
        r = -EFBIG;
    text_deinit(&t.strings);
    return r;
}

/* Takes the strings, which stand in front. */
static int take_strings(struct telling *t, struct waits *out)
{
    struct fields *fields = &t->fields;

    FIELD(fields, t->size, 1, TEXT_MAX);
    if (fields->error < 0 || t->size > (size_t)(fields->end - fields->at) || *fields->at != '\n')
        return -EPROTO;
    t->words = out->words = malloc(t->size + 1);
    if (!t->words)
        return -ENOMEM;
    memcpy(t->words, fields->at, t->size);
    t->words[t->size] = 0;
    exchange(t->words, t->size, '\n', '\0');
    text_add(&out->strings, t->words, t->size);
    fields->at += t->size;
    t->size--; /* the last that a string can be */
    return out->strings.error;
}

int waits_parse(const char *text, size_t size, struct waits *out)
{
    struct telling t = {.fields = {.at = text, .end = text + size}};

    int r = take_strings(&t, out);
    if (r < 0)
        return r;
    waits_fields(&t, out);
    if (t.fields.error < 0)
        return t.fields.error;
    return t.fields.at == t.fields.end ? 0 : -EPROTO;
}
