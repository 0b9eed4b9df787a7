#include "fs/remote/since/since.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/array.h"
#include "fs/proc/asleep.h"
#include "fs/proc/lwp.h"
#include "fs/proc/procfs.h"
#include "fs/proc/runs.h"
#include "fs/remote/memory/view.h"
#include "fs/remote/moment/moment.h"
#include "fs/remote/since/looks.h"

#include <errno.h>

#define CLOCKS_NS 100000000u /* so long processors' clocks are waited for, in all */
/* At least, from one judgement whether a thread is busy to the next. */
#define BETWEEN_NS 500000000u
/* A thread that wasn't looked at for so long is seen for the first time again. */
#define UNSEEN_NS 10000000000u
/* A thread is busy that had a processor for this part of the time, that had or wanted one for that
 * part, or that wants one now and has waited for other things no more often than that. */
#define BUSY_RAN 0.25
#define BUSY_READY 0.75
#define BUSY_WAITS 4
/* A thread that ran so shortly before is known to have stopped then. */
#define EXACT_NS 2000000000u

/* A Python frame and what runs in it. */
struct running_frame {
    uint64_t frame, code;
    int line;
};

/* What the looks have seen of one thread. Times are CLOCK_MONOTONIC, ns; 0: never. */
struct seen {
    pid_t tid;
    struct runs runs;
    uint64_t known_ns; /* when it was seen first */
    uint64_t
        first_ns; /* when it was first seen to have run so often; it was asleep since, or runs */
    uint64_t other_ns; /* before that it was seen to have run less often */
    uint64_t slept_ns; /* when it fell asleep, as the kernel says; no earlier than it did so */
    bool slept_exact;

    struct running_frame place; /* of a thread that runs: where it was seen, ... */
    uint64_t here_ns;           /* ... at each look since then in this frame, ... */
    uint64_t line_ns;           /* ... and at this line of it */
    uint64_t judged_ns; /* when it was last judged to be busy or not, and what was known then: */
    struct runs judged;
    uint64_t judged_waits;
};

struct seen_task {
    uint64_t addr;
    uint64_t state;    /* its name, where its coroutine stands and what it awaits, hashed */
    uint64_t first_ns; /* when that was seen first */
};

struct since {
    struct target_kept kept;
    pthread_mutex_t lock; /* after target->lock, if both */
    struct seen *threads; /* ascending by tid */
    size_t n;
    uint64_t looked_ns; /* when the last look began */
    uint64_t gils;      /* who has had the GILs how often, hashed */
    uint64_t gils_ns;   /* when that was seen first; 0: not known */
    size_t ngils;
    struct view *view; /* its own: what the stacks' readers know of the memory stays theirs */
    struct walk walk;

    struct asyncio asyncio;  /* where the tasks are, once somebody has asked about them ... */
    uint64_t tasks_asked_ns; /* ... the last time; 0: never */
    uint64_t tasks_ns;       /* when they were as they were seen last */
    struct seen_task *tasks; /* ascending by address */
    size_t ntasks;
};

static void free_since(struct target_kept *kept)
{
    struct since *since = (struct since *)kept;

    free(since->threads);
    free(since->tasks);
    walk_deinit(&since->walk);
    view_free(since->view);
    pthread_mutex_destroy(&since->lock);
    free(since);
}

/* NULL without memory. */
static struct since *since_of(struct target *target)
{
    struct since *since = (struct since *)atomic_load(&target->kept[KEPT_BY_SINCE]);
    if (since)
        return since;
    since = calloc(1, sizeof *since);
    if (!since || view_new(&target->memory, &since->view) < 0) {
        free(since);
        return NULL;
    }
    since->kept.free = free_since;
    since->walk.depth = 1;
    pthread_mutex_init(&since->lock, NULL);
    struct target_kept *kept = target_keep(target, KEPT_BY_SINCE, &since->kept);
    if (kept != &since->kept)
        free_since(&since->kept); /* another thread was faster */
    return (struct since *)kept;
}

#define HASH_START 0xcbf29ce484222325u /* FNV-1a, by words */

static uint64_t mix(uint64_t hash, uint64_t value) { return (hash ^ value) * 0x100000001b3u; }

static int by_tid(const void *a, const void *b)
{
    const struct seen *x = a, *y = b;
    return (x->tid > y->tid) - (x->tid < y->tid);
}

static struct seen *find(const struct since *since, pid_t tid)
{
    const struct seen key = {.tid = tid};

    return since->n ? bsearch(&key, since->threads, since->n, sizeof key, by_tid) : NULL;
}

/* ---- what the kernel counts ---- */

struct listing {
    const struct target *target;
    const struct since *since;
    struct seen *items;
    size_t n, alloc;
    bool moved; /* a thread has run since the last look, or is new */
};

static struct seen moved_on(struct seen seen, const struct runs *runs, uint64_t looked_ns)
{
    seen.other_ns = seen.known_ns ? looked_ns : 0;
    seen.runs = *runs;
    seen.first_ns = monotonic_ns();
    seen.slept_ns = 0;
    if (!seen.known_ns)
        seen.known_ns = seen.first_ns;
    return seen;
}

/* 1: that is enough. */
static int add(void *arg, int tasks, pid_t tid)
{
    struct listing *listing = arg;
    const struct seen *old = find(listing->since, tid);
    struct seen seen = old ? *old : (struct seen){.tid = tid};
    struct runs runs;

    if (listing->n == SINCE_THREADS_MAX)
        return 1;
    if (runs_read(listing->target->pid, tid, &runs) < 0)
        return 0; /* it has just ended */
    if (runs.n < seen.runs.n || runs.ns < seen.runs.ns)
        seen = (struct seen){.tid = tid}; /* another thread by that number */
    if (!seen.known_ns || runs.n != seen.runs.n || runs.ns != seen.runs.ns) {
        seen = moved_on(seen, &runs, listing->since->looked_ns);
        listing->moved = true;
    } else {
        seen.here_ns = seen.judged_ns = 0;
    }
    if (ARRAY_GROW(listing->items, listing->alloc, listing->n + 1) < 0)
        return -ENOMEM;
    listing->items[listing->n++] = seen;
    return 0;
}

/* ---- where those are that run ---- */

/* Whether it has been busy since it was judged last. */
static bool judge(const struct target *target, struct seen *seen, bool wants, uint64_t now)
{
    uint64_t waits = runs_voluntary(target->pid, seen->tid);
    double ran = (double)(seen->runs.ns - seen->judged.ns),
           queued = (double)(seen->runs.queued_ns - seen->judged.queued_ns),
           passed = (double)(now - seen->judged_ns);
    bool busy = seen->judged_ns && now - seen->judged_ns < UNSEEN_NS &&
                (ran >= BUSY_RAN * passed || ran + queued >= BUSY_READY * passed ||
                 (wants && waits - seen->judged_waits <= BUSY_WAITS));

    seen->judged_ns = now;
    seen->judged = seen->runs;
    seen->judged_waits = waits;
    return busy;
}

static void note_place(const struct target *target, struct seen *seen, const struct lwp *lwp,
                       const struct running_frame *place, uint64_t now)
{
    bool busy = true;

    if (now - seen->judged_ns >= BETWEEN_NS)
        busy = judge(target, seen, lwp->state == 'R', now);
    if (!busy || !seen->here_ns || place->frame != seen->place.frame ||
        place->code != seen->place.code)
        seen->here_ns = seen->line_ns = now;
    else if (place->line != seen->place.line)
        seen->line_ns = now;
    seen->place = *place;
}

static void note_places(struct target *target, struct since *since, const struct lwp_list *lwps,
                        uint64_t now)
{
    for (size_t i = 0; i < since->walk.n; i++) {
        const struct stack *stack = &since->walk.stacks[i];
        if (!stack->n)
            continue;
        const struct raw_frame *frame = &stack->frames[0];
        pid_t tid = moment_tid(target, lwps, stack);
        struct seen *seen = tid ? find(since, tid) : NULL;
        if (!seen || seen->first_ns < now || !frame->info || frame->info->state != CODE_LOADED)
            continue;
        const struct running_frame place = {frame->addr, frame->code,
                                            linetable_line(&frame->info->lines, frame->lasti)};
        note_place(target, seen, lwp_find(lwps, tid), &place, now);
    }
}

/* ---- the GILs ---- */

/* How often each was handed on: switch_number follows `locked` in struct _gil_runtime_state
 * (Include/internal/pycore_gil.h). */
static void note_gils(struct target *target, struct since *since, uint64_t now)
{
    const struct walk *walk = &since->walk;
    uint64_t hash = HASH_START, switches;
    int r = 0;

    for (size_t i = 0; i < walk->ngils && r == 0; i++) {
        r = memory_read(&target->memory,
                        walk->gils[i].addr + (uint64_t)target->runtime.offsets.gil_locked + 8,
                        &switches, sizeof switches);
        hash = mix(mix(hash, walk->gils[i].addr), switches);
    }
    since->ngils = walk->ngils;
    if (r < 0 || !walk->ngils)
        since->gils_ns = 0;
    else if (!since->gils_ns || hash != since->gils)
        since->gils_ns = monotonic_ns();
    since->gils = hash;
}

/* ---- tasks ---- */

static uint64_t mix_text(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = mix(hash, (unsigned char)*text);
    return hash;
}

static uint64_t state_of(const struct tasks *tasks, const struct task *task)
{
    uint64_t hash = mix_text(mix_text(HASH_START, tasks_string(tasks, task->name)),
                             tasks_string(tasks, task->awaits));

    for (uint32_t f = task->frames; f != TASKS_NONE; f = tasks->frames[f].next)
        hash = mix(mix(hash, tasks->frames[f].code), (uint64_t)tasks->frames[f].lasti);
    return hash;
}

static int by_addr(const void *a, const void *b)
{
    const struct seen_task *x = a, *y = b;
    return (x->addr > y->addr) - (x->addr < y->addr);
}

static const struct seen_task *find_task(const struct since *since, uint64_t addr)
{
    const struct seen_task key = {.addr = addr};

    return since->ntasks ? bsearch(&key, since->tasks, since->ntasks, sizeof key, by_addr) : NULL;
}

static void note_tasks(struct since *since, const struct tasks *tasks)
{
    struct seen_task *all = calloc(tasks->n + 1, sizeof *all);
    uint64_t now = monotonic_ns();

    if (!all)
        return;
    for (size_t i = 0; i < tasks->n; i++) {
        const struct task *task = &tasks->items[i];
        const struct seen_task *old = find_task(since, task->addr);
        all[i] = (struct seen_task){task->addr, state_of(tasks, task), now};
        if (old && old->state == all[i].state && now - since->tasks_ns < UNSEEN_NS)
            all[i].first_ns = old->first_ns;
    }
    array_sort(all, tasks->n, sizeof *all, by_addr);
    free(since->tasks);
    since->tasks = all;
    since->ntasks = tasks->n;
    since->tasks_ns = now;
}

/* Looks at tasks as they are while nobody waits for us: what is torn is left for the next look. */
static void look_at_tasks(struct target *target, struct since *since)
{
    _cleanup_(tasks_deinit) struct tasks tasks = {0};
    const struct tasks_origin origin = {
        .runtime = &target->runtime,
        .asyncio = &since->asyncio,
        .codes = target->codes,
        .walk = &since->walk,
    };

    if (tasks_read(since->view, &origin, &tasks) == 0 && !tasks.torn)
        note_tasks(since, &tasks);
    view_reset(since->view); /* thousands of pages */
}

/* ---- a look ---- */

/* The innermost frames, as they are while nobody waits for us: a thread that runs may change them
 * meanwhile, and what was seen of it then is like nothing else. The caller holds target->lock. */
static int read_frames(struct target *target, struct since *since, uint64_t now)
{
    _cleanup_(lwp_list_deinit) struct lwp_list lwps = {0};

    int r = view_refresh(since->view);
    if (r == 0)
        r = walk_run(&since->walk, since->view, &target->runtime, target->codes);
    if (r == 0)
        r = code_cache_load(target->codes, &target->memory, &target->runtime.offsets);
    if (r == 0)
        r = lwp_list_read(target->pid, LWP_STATES, &lwps);
    if (r == 0)
        note_places(target, since, &lwps, now);
    if (r == 0 && since->ntasks <= SINCE_TASKS_MAX && since->tasks_asked_ns &&
        now < since->tasks_asked_ns + SINCE_KEPT_NS)
        look_at_tasks(target, since);
    return r;
}

/* Whether a thread has moved since the last look. */
static bool count_runs(struct target *target, struct since *since, uint64_t now)
{
    struct listing listing = {.target = target, .since = since};

    if (proc_each_task(target->pid, add, &listing) < 0) {
        free(listing.items);
        return false;
    }
    array_sort(listing.items, listing.n, sizeof *listing.items, by_tid);
    free(since->threads);
    since->threads = listing.items;
    since->n = listing.n;
    since->looked_ns = now;
    return listing.moved;
}

/* Caller holds since->lock. */
static void look(struct target *target, struct since *since)
{
    uint64_t now = monotonic_ns();
    int r = -EBUSY;

    bool moved = count_runs(target, since, now);
    if (!moved && since->n < SINCE_THREADS_MAX) /* else others may have run its tasks */
        since->tasks_ns = now;
    if (!moved || !target->runtime.supported)
        return;
    if (since->n < SINCE_THREADS_MAX && !pthread_mutex_trylock(&target->lock)) {
        r = read_frames(target, since, now);
        pthread_mutex_unlock(&target->lock);
    }
    if (r == 0)
        note_gils(target, since, now);
    else
        since->gils_ns = 0;
}

void since_look(struct target *target)
{
    struct since *since = since_of(target);

    if (!since)
        return;
    _guard_mutex_(&since->lock);
    look(target, since);
}

/* ---- what that comes to ---- */

static uint64_t passed(uint64_t then, uint64_t now) { return then && now > then ? now - then : 0; }

/* How long a thread has stood that was asleep at `now`. */
static struct standing asleep(const struct target *target, struct seen *seen, uint64_t now,
                              uint64_t until)
{
    struct asleep kernel;
    struct standing result = {
        .kind = STANDS,
        .ns = passed(seen->first_ns, now),
        .at_least = !seen->other_ns || seen->first_ns - seen->other_ns > EXACT_NS,
    };

    if (!seen->slept_ns && asleep_for(target->pid, seen->tid, until, &kernel) == 0) {
        seen->slept_ns = monotonic_ns() - kernel.ns;
        seen->slept_exact = kernel.exact;
    }
    if (passed(seen->slept_ns, now) >= result.ns) {
        result.ns = passed(seen->slept_ns, now);
        result.at_least = result.at_least && !seen->slept_exact;
    }
    return result;
}

/* How long any thread has stood, without a look. Caller holds since->lock. */
static struct standing asleep_now(const struct target *target, const struct since *since, pid_t tid,
                                  uint64_t until)
{
    uint64_t now = monotonic_ns();
    struct seen *seen = find(since, tid), fresh = {.tid = tid};
    struct runs runs;

    if (lwp_state(target->pid, tid) == 'R' || runs_read(target->pid, tid, &runs) < 0)
        return (struct standing){0};
    bool same = seen && seen->runs.n == runs.n && seen->runs.ns == runs.ns;
    return asleep(target, same ? seen : &fresh, now, until);
}

static const struct frame *innermost(const struct thread *thread)
{
    for (size_t i = 0; i < thread->nframes && thread->frames[i].kind != FRAME_UNREADABLE; i++)
        if (thread->frames[i].kind == FRAME_PYTHON)
            return &thread->frames[i];
    return NULL;
}

/* How long a thread that runs has been seen where it is. */
static struct standing seen_at(const struct since *since, const struct seen *seen,
                               const struct thread *thread)
{
    const struct frame *frame = innermost(thread);
    uint64_t here = passed(seen->here_ns, since->looked_ns),
             line = passed(seen->line_ns, since->looked_ns);

    if (!frame || frame->address != seen->place.frame || frame->code != seen->place.code)
        return (struct standing){0};
    if (line == here && frame->line == seen->place.line && !frame->jit)
        return (struct standing){.kind = SEEN_LINE, .ns = line};
    return (struct standing){.kind = SEEN_FUNCTION, .ns = here};
}

/* The one thread that holds the only GIL; NULL: there is none such, or there are more GILs. */
static const struct thread *holder(const struct since *since, const struct snapshot *snapshot)
{
    for (size_t i = 0; since->ngils == 1 && i < snapshot->nthreads; i++)
        if (snapshot->threads[i].holds_gil)
            return &snapshot->threads[i];
    return NULL;
}

/* How long a thread has stood that waits for the GIL, and wakes up now and then to ask for it: it
 * hasn't run Python since the GIL was handed on, nor since its holder fell asleep. */
static struct standing waits(const struct since *since, const struct seen *seen,
                             const struct thread *holder)
{
    uint64_t from = seen->known_ns > since->gils_ns ? seen->known_ns : since->gils_ns;
    struct standing result = {.kind = STANDS, .at_least = true};

    if (since->gils_ns)
        result.ns = passed(from, since->looked_ns);
    if (holder && holder->standing.kind == STANDS && holder->standing.ns > result.ns)
        result.ns = holder->standing.ns;
    return result;
}

static void describe(const struct target *target, const struct since *since, struct thread *thread,
                     uint64_t until)
{
    struct seen *seen = find(since, thread->tid);

    if (!seen)
        return;
    switch (thread->state) {
    case THREAD_IDLE:
    case THREAD_STOPPED:
    case THREAD_TRACED: thread->standing = asleep(target, seen, since->looked_ns, until); break;
    case THREAD_RUNNING: thread->standing = seen_at(since, seen, thread); break;
    case THREAD_GIL_WAIT:
    case THREAD_FAULTED:
    case THREAD_DEAD: break;
    }
}

void since_threads(struct target *target, struct snapshot *snapshot)
{
    struct since *since = target->core ? NULL : since_of(target);

    if (!since)
        return;
    looks_ask(target);
    _guard_mutex_(&since->lock);
    look(target, since);
    uint64_t until = monotonic_ns() + CLOCKS_NS;
    for (size_t i = 0; i < snapshot->nthreads; i++)
        describe(target, since, &snapshot->threads[i], until);
    const struct thread *holds = holder(since, snapshot);
    for (size_t i = 0; i < snapshot->nthreads; i++) {
        struct thread *thread = &snapshot->threads[i];
        const struct seen *seen = find(since, thread->tid);
        if (thread->state == THREAD_GIL_WAIT && seen)
            thread->standing = waits(since, seen, holds);
    }
}

struct standing since_thread(struct target *target, pid_t tid)
{
    struct since *since = target->core ? NULL : since_of(target);

    if (!since)
        return (struct standing){0};
    looks_ask(target);
    _guard_mutex_(&since->lock);
    return asleep_now(target, since, tid, monotonic_ns() + CLOCKS_NS);
}

/* Certain where their loop's thread hasn't run, else since when each look has seen the same. */
static void describe_loop(const struct target *target, const struct since *since,
                          struct tasks *tasks, uint32_t loop, uint64_t until)
{
    pid_t tid = tasks->loops[loop].tid;
    uint64_t now = monotonic_ns();
    struct standing thread = {0};

    if (tid)
        thread = asleep_now(target, since, tid, until);
    if (thread.ns > passed(tasks->read_ns, now)) /* it stood there already when they were read */
        tasks->loops[loop].standing = thread;
    for (size_t i = 0; i < tasks->n; i++) {
        struct task *task = &tasks->items[i];
        const struct seen_task *seen = find_task(since, task->addr);
        if (task->loop != loop || task->state == TASK_UNREADABLE)
            continue;
        task->standing = thread;
        if (seen && task->state == TASK_WAITING && passed(seen->first_ns, now) > thread.ns)
            task->standing =
                (struct standing){.kind = SEEN_AWAITING, .ns = passed(seen->first_ns, now)};
    }
}

void since_tasks(struct target *target, const struct asyncio *asyncio, struct tasks *tasks)
{
    struct since *since = target->core ? NULL : since_of(target);

    if (!since)
        return;
    looks_ask(target);
    _guard_mutex_(&since->lock);
    since->asyncio = *asyncio;
    since->tasks_asked_ns = monotonic_ns();
    if (!tasks->torn)
        note_tasks(since, tasks);
    if (!since->n)
        count_runs(target, since, since->tasks_asked_ns);
    uint64_t until = since->tasks_asked_ns + CLOCKS_NS;
    for (uint32_t i = 0; i < tasks->nloops; i++)
        describe_loop(target, since, tasks, i, until);
}
