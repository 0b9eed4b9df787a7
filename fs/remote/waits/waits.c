#include "fs/remote/waits/waits.h"

#include "agent/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/proc/lwp.h"
#include "fs/remote/moment/moment.h"
#include "fs/remote/moment/snapshot.h"
#include "fs/remote/since/since.h"

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
    free(waits->threads);
    free(waits->words);
    text_deinit(&waits->strings);
    addresses_deinit(&waits->names);
    *waits = (struct waits){0};
}

static void clear(struct waits *waits)
{
    waits->n = waits->nholders = waits->ncycles = waits->nlinks = waits->nasleep = 0;
    waits->cut = waits->torn = waits->late = false;
    addresses_clear(&waits->names);
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

bool waits_name_known(const struct waits *waits, uint64_t address, uint32_t *name)
{
    uint32_t known = addresses_find(&waits->names, address);

    if (known == ADDRESSES_NONE)
        return false;
    *name = known;
    return true;
}

void waits_name_keep(struct waits *waits, uint64_t address, uint32_t name)
{
    (void)addresses_set(&waits->names, address, name); /* else it is looked for again */
}

int waits_read(const struct waits_origin *origin, struct waits *out)
{
    clear(out);
    out->lwps = origin->lwps;
    int r = waits_of_threads(out, origin);
    if (r == 0)
        r = waits_of_files(out, origin);
    if (r == 0)
        r = waits_of_tasks(out, origin);
    return r < 0 ? r : out->strings.error;
}

/* ---- lines ---- */

/* Whether a thread has moved. One that waits for the GIL wakes every few milliseconds, and waits
 * on. */
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

/* The search for circles: depth first from each wait to those of who holds what it waits for. */
struct search {
    struct waits *waits;
    uint32_t *order; /* waits by who waits, as by_actor() has it */
    uint32_t *path;  /* the waits on the way here */
    uint32_t *child; /* of each wait on the way: the place in `order` to go on at */
    enum { UNSEEN, ON_PATH, DONE } * seen;
};

static int compare_actors(const struct actor *a, const struct actor *b)
{
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->task || b->task)
        return a->task < b->task ? -1 : a->task > b->task;
    return a->id < b->id ? -1 : a->id > b->id;
}

static int by_actor(const void *a, const void *b, void *arg)
{
    const struct waits *waits = arg;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    int r = compare_actors(&waits->items[x].who, &waits->items[y].who);

    return r ? r : x < y ? -1 : 1;
}

/* The place in `order` of the first wait of whom a wait waits for: of a holder that nobody else can
 * stand in for. waits->n: none. */
static uint32_t first_child(const struct search *s, uint32_t w)
{
    const struct waits *waits = s->waits;
    const struct wait *wait = &waits->items[w];

    if (wait->nholders != 1)
        return (uint32_t)waits->n;
    const struct actor *holder = &waits->holders[wait->holders].who;
    return (uint32_t)LOWER_BOUND(waits->n, i,
                                 compare_actors(&waits->items[s->order[i]].who, holder) < 0);
}

/* The next one to go on to; WAITS_NONE: there is none left. */
static uint32_t next_child(const struct search *s, uint32_t w)
{
    const struct waits *waits = s->waits;
    uint32_t place = s->child[w];

    if (place >= waits->n ||
        !same(&waits->items[s->order[place]].who, &waits->holders[waits->items[w].holders].who))
        return WAITS_NONE;
    s->child[w]++;
    return s->order[place];
}

/* path: n waits of which each leads to the next one, and the last to the first. */
static int add_cycle(struct waits *waits, const uint32_t *path, uint32_t n)
{
    struct wait_cycle cycle = {.first = (uint32_t)waits->nlinks, .n = n};

    for (uint32_t i = 0; i < n; i++)
        if (waits->items[path[i]].cycle != WAITS_NONE)
            return 0; /* it shares a part with one that is told */
    if (waits->ncycles == WAITS_CYCLES_MAX) {
        waits->cut = true;
        return 0;
    }
    if (ARRAY_GROW(waits->cycles, waits->cycles_alloc, waits->ncycles + 1) < 0 ||
        ARRAY_GROW(waits->links, waits->links_alloc, waits->nlinks + n) < 0)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        struct wait *wait = &waits->items[path[i]];
        waits->links[waits->nlinks++] = path[i];
        wait->cycle = (uint32_t)waits->ncycles;
        cycle.likely |= waits->holders[wait->holders].certainty == HELD_LIKELY;
        cycle.timed |= wait->timed;
    }
    waits->cycles[waits->ncycles++] = cycle;
    return 0;
}

static int search_from(struct search *s, uint32_t start)
{
    uint32_t depth = 0;
    int r = 0;

    s->path[depth++] = start;
    s->seen[start] = ON_PATH;
    s->child[start] = first_child(s, start);
    while (depth && r == 0) {
        uint32_t next = next_child(s, s->path[depth - 1]), at = depth;
        if (next == WAITS_NONE) {
            s->seen[s->path[--depth]] = DONE;
        } else if (s->seen[next] == ON_PATH) {
            while (s->path[--at] != next)
                ;
            r = add_cycle(s->waits, s->path + at, depth - at);
        } else if (s->seen[next] == UNSEEN) {
            s->path[depth++] = next;
            s->seen[next] = ON_PATH;
            s->child[next] = first_child(s, next);
        }
    }
    return r;
}

static int find_cycles(struct waits *waits)
{
    size_t n = waits->n;
    _cleanup_free_ uint32_t *numbers = calloc(3 * n + 1, sizeof *numbers);
    struct search s = {waits, numbers, numbers + n, numbers + 2 * n, NULL};
    int r = 0;

    s.seen = calloc(n + 1, sizeof *s.seen);
    if (!numbers || !s.seen)
        r = -ENOMEM;
    for (uint32_t i = 0; i < n && r == 0; i++)
        s.order[i] = i;
    if (r == 0)
        qsort_r(s.order, n, sizeof *s.order, by_actor, waits);
    for (uint32_t i = 0; i < n && r == 0; i++)
        if (s.seen[i] == UNSEEN)
            r = search_from(&s, i);
    free(s.seen);
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

static int by_tid(const void *a, const void *b)
{
    const struct wait_thread *x = a, *y = b;

    return x->tid < y->tid ? -1 : x->tid > y->tid;
}

int waits_note_threads(struct waits *waits, const struct snapshot *snapshot)
{
    free(waits->threads);
    waits->nthreads = 0;
    waits->threads = calloc(snapshot->nthreads + 1, sizeof *waits->threads);
    if (!waits->threads)
        return -ENOMEM;
    if (!waits->strings.size)
        text_putc(&waits->strings, '\0'); /* the string 0: nothing was read */
    for (size_t i = 0; i < snapshot->nthreads; i++) {
        const struct thread *thread = &snapshot->threads[i];
        waits->threads[waits->nthreads++] = (struct wait_thread){
            .tid = thread->tid,
            .name = add_string(waits, thread->name ? thread->name : ""),
            .standing = thread->standing,
        };
    }
    qsort(waits->threads, waits->nthreads, sizeof *waits->threads, by_tid);
    return waits->strings.error;
}

const struct wait_thread *waits_thread(const struct waits *waits, pid_t tid)
{
    const struct wait_thread wanted = {.tid = tid};

    return waits->nthreads
               ? bsearch(&wanted, waits->threads, waits->nthreads, sizeof wanted, by_tid)
               : NULL;
}

int waits_read_tasks(struct waits_reading *reading)
{
    struct target *target = reading->target;

    if (!target->runtime.supported || target->runtime.version < TASKS_OLDEST)
        return 0;
    _guard_mutex_(&target->lock);
    int r = target_refresh_maps(target);
    if (r == 0)
        r = asyncio_find(&target->memory, &target->maps, &target->runtime, &reading->asyncio);
    reading->has_tasks = r == 0;
    return r == -EOPNOTSUPP ? 0 : r; /* where they are can't be told: threads are there */
}

static int read_along(void *arg, const struct moment *moment, const struct lwp_list *lwps)
{
    struct waits_reading *reading = arg;
    const struct waits_origin origin = {
        .target = reading->target,
        .walk = moment->walk,
        .lwps = lwps,
        .tasks = reading->has_tasks ? &reading->tasks : NULL,
    };

    int r = reading->has_tasks ? tasks_read_along(reading->target, &reading->asyncio, moment, lwps,
                                                  &reading->tasks)
                               : 0;
    if (r == 0)
        r = waits_read(&origin, &reading->waits);
    reading->waits.torn = !moment->verified || reading->tasks.torn;
    return r;
}

static int finish_along(void *arg)
{
    struct waits_reading *reading = arg;
    struct target *target = reading->target;
    struct tasks *tasks = &reading->tasks;
    int r = 0;

    if (reading->has_tasks) {
        view_reset(target->view); /* thousands of pages that are of no use for the next stack */
        r = tasks_finish(tasks, target->codes, &target->memory, &target->runtime.offsets);
    }
    if (r == 0 && reading->has_tasks) {
        since_tasks(target, &reading->asyncio, tasks);
        r = waits_note_tasks(&reading->waits, tasks);
    }
    return r < 0 ? r : waits_finish(&reading->waits);
}

void waits_read_along(struct waits_reading *reading, struct snapshot_options *options)
{
    options->work = read_along;
    options->still = true;
    options->finish = finish_along;
    options->arg = reading;
}

void waits_reading_deinit(struct waits_reading *reading)
{
    waits_deinit(&reading->waits);
    tasks_deinit(&reading->tasks);
}
