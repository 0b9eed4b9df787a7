#include "fs/remote/waits/waits.h"

#include "agent/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/proc/lwp.h"
#include "fs/remote/moment/moment.h"
#include "fs/remote/moment/snapshot.h"

#include <errno.h>
#include <string.h>

void waits_deinit(struct waits *waits)
{
    if (!waits)
        return;
    free(waits->items);
    free(waits->holders);
    free(waits->cycles);
    free(waits->links);
    free(waits->asleep);
    text_deinit(&waits->strings);
    *waits = (struct waits){0};
}

static void clear(struct waits *waits)
{
    waits->n = waits->nholders = waits->ncycles = waits->nlinks = waits->nasleep = 0;
    waits->cut = waits->torn = false;
    text_clear(&waits->strings);
    text_putc(&waits->strings, '\0'); /* the string 0 */
}

/* ---- for finders ---- */

struct wait *waits_add(struct waits *waits, struct actor who, const char *kind)
{
    if (waits->n == WAITS_MAX) {
        waits->cut = true;
        return NULL;
    }
    if (ARRAY_GROW(waits->items, waits->alloc, waits->n + 1) < 0) {
        waits->strings.error = -ENOMEM;
        return NULL;
    }
    struct wait *wait = &waits->items[waits->n++];
    *wait = (struct wait){
        .who = who,
        .kind = kind,
        .held = "held by",
        .since_ns = WAITS_UNKNOWN_NS,
        .holders = (uint32_t)waits->nholders,
        .cycle = WAITS_NONE,
    };
    return wait;
}

struct wait_holder *waits_add_holder(struct waits *waits, struct actor who,
                                     enum certainty certainty)
{
    if (!waits->n || waits->nholders == WAITS_MAX) {
        waits->cut = true;
        return NULL;
    }
    if (ARRAY_GROW(waits->holders, waits->holders_alloc, waits->nholders + 1) < 0) {
        waits->strings.error = -ENOMEM;
        return NULL;
    }
    struct wait_holder *holder = &waits->holders[waits->nholders++];
    *holder =
        (struct wait_holder){.who = who, .certainty = certainty, .since_ns = WAITS_UNKNOWN_NS};
    waits->items[waits->n - 1].nholders++;
    return holder;
}

uint32_t waits_string_begin(struct waits *waits) { return (uint32_t)waits->strings.size; }

void waits_string_end(struct waits *waits) { text_putc(&waits->strings, '\0'); }

const char *waits_string(const struct waits *waits, uint32_t string)
{
    return string < waits->strings.size ? waits->strings.data + string : "";
}

int waits_read(const struct waits_origin *origin, struct waits *out)
{
    clear(out);
    out->lwps = origin->lwps;
    int r = waits_of_threads(out, origin);
    if (r == 0)
        r = waits_of_files(out, origin);
    return r < 0 ? r : out->strings.error;
}

/* ---- lines ---- */

/* One that waits for the GIL wakes every few milliseconds, and waits on. */
static bool has_moved(const struct waits *waits, const struct wait *wait)
{
    const struct lwp *lwp = wait->who.kind == ACTOR_THREAD && strcmp(wait->kind, "GIL")
                                ? lwp_find(waits->lwps, wait->who.id)
                                : NULL;
    return lwp && lwp->moved;
}

static void drop_moved(struct waits *waits)
{
    size_t kept = 0;

    for (size_t i = 0; i < waits->n; i++)
        if (!has_moved(waits, &waits->items[i]))
            waits->items[kept++] = waits->items[i];
    waits->n = kept;
    waits->lwps = NULL;
}

static uint32_t add_string(struct waits *waits, const char *s)
{
    uint32_t string = waits_string_begin(waits);

    text_puts(&waits->strings, s);
    waits_string_end(waits);
    return string;
}

static void find_line(struct waits *waits, struct wait_place *place)
{
    const struct code *code = place->code;

    place->code = NULL;
    if (!code || code->state != CODE_LOADED)
        return;
    int line = linetable_line(&code->lines, place->lasti);
    place->line = line > 0 ? line : 0;
    place->func = add_string(waits, code->name);
    place->file = add_string(waits, code->file);
}

/* ---- deadlocks ---- */

static bool same(const struct actor *a, const struct actor *b)
{
    return a->kind == b->kind && a->kind != ACTOR_GONE && a->task == b->task &&
           (a->task || a->id == b->id);
}

/* The wait of the one whom a wait waits for: of a holder that nobody else can stand in for. */
static uint32_t next_of(const struct waits *waits, uint32_t w)
{
    const struct wait *wait = &waits->items[w];

    if (wait->nholders != 1)
        return WAITS_NONE;
    for (uint32_t i = 0; i < waits->n; i++)
        if (same(&waits->items[i].who, &waits->holders[wait->holders].who))
            return i;
    return WAITS_NONE;
}

static int add_cycle(struct waits *waits, const uint32_t *next, uint32_t at)
{
    struct wait_cycle cycle = {.first = (uint32_t)waits->nlinks};

    if (waits->ncycles == WAITS_CYCLES_MAX) {
        waits->cut = true;
        return 0;
    }
    if (ARRAY_GROW(waits->cycles, waits->cycles_alloc, waits->ncycles + 1) < 0)
        return -ENOMEM;
    for (uint32_t w = at; waits->items[w].cycle == WAITS_NONE; w = next[w]) {
        struct wait *wait = &waits->items[w];
        if (ARRAY_GROW(waits->links, waits->links_alloc, waits->nlinks + 1) < 0)
            return -ENOMEM;
        waits->links[waits->nlinks++] = w;
        wait->cycle = (uint32_t)waits->ncycles;
        cycle.likely |= waits->holders[wait->holders].certainty == HELD_LIKELY;
        cycle.timed |= wait->timed;
        cycle.n++;
    }
    waits->cycles[waits->ncycles++] = cycle;
    return 0;
}

/* Every wait leads to at most one other, so that from each there is one path to follow. */
static int find_cycles(struct waits *waits)
{
    _cleanup_free_ uint32_t *next = calloc(waits->n + 1, sizeof *next);
    _cleanup_free_ uint32_t *seen = calloc(waits->n + 1, sizeof *seen); /* from which one, + 1 */
    int r = 0;

    if (!next || !seen)
        return -ENOMEM;
    for (uint32_t i = 0; i < waits->n; i++)
        next[i] = next_of(waits, i);
    for (uint32_t i = 0; i < waits->n && r == 0; i++) {
        uint32_t w = i;
        for (; w != WAITS_NONE && !seen[w]; w = next[w])
            seen[w] = i + 1;
        if (w != WAITS_NONE && seen[w] == i + 1)
            r = add_cycle(waits, next, w);
    }
    return r;
}

int waits_finish(struct waits *waits)
{
    drop_moved(waits);
    for (size_t i = 0; i < waits->n; i++)
        find_line(waits, &waits->items[i].place);
    for (size_t i = 0; i < waits->nholders; i++)
        find_line(waits, &waits->holders[i].taken);
    int r = find_cycles(waits);
    return r < 0 ? r : waits->strings.error;
}

/* ---- along with a snapshot ---- */

static int read_along(void *arg, const struct moment *moment, const struct lwp_list *lwps)
{
    struct waits_reading *reading = arg;
    const struct waits_origin origin = {
        .target = reading->target,
        .walk = moment->walk,
        .lwps = lwps,
    };

    int r = waits_read(&origin, &reading->waits);
    reading->waits.torn = !moment->verified;
    return r;
}

static int finish_along(void *arg)
{
    struct waits_reading *reading = arg;

    return waits_finish(&reading->waits);
}

void waits_read_along(struct waits_reading *reading, struct snapshot_options *options)
{
    options->work = read_along;
    options->still = true;
    options->finish = finish_along;
    options->arg = reading;
}

void waits_reading_deinit(struct waits_reading *reading) { waits_deinit(&reading->waits); }
