/* The source for where the kernel takes no samples itself, but an agent is in the process: the
 * kernel sends SIGTRAP to a thread whose quantum of processor time has ended, and the agent's
 * handler takes down where it is (agent/sample/). The events are the daemon's (trap_watch.h), so
 * that they end with it, however it ends.
 *
 * It sees a thread in user mode only. What a sample weighs is what the thread's own clock says that
 * it has used since the last one, so that time in the kernel counts for where it went on after it,
 * and no time is lost with a sample. A thread that blocks SIGTRAP isn't seen. */
#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "agent/wire/trap_samples.h"
#include "fs/base/array.h"
#include "fs/link/attach.h"
#include "fs/proc/lwp.h"
#include "fs/proc/runs.h"
#include "fs/remote/frames/gil.h"
#include "fs/sampler/sampler.h"
#include "fs/sampler/stacks.h"
#include "fs/sampler/trap_watch.h"
#include "fs/watch/registers.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOOK_NS_MIN 2000000u
#define LOOK_NS_MAX 50000000u
#define UNFINISHED_NS 50000000u /* a slot that is begun is waited for so long */
#define NAMES_NS 10000000000u
#define BLOCKING_NS 1000000000u /* threads that block SIGTRAP are counted so often */
#define THREADS_MAX 16384
#define HEAD offsetof(struct trap_samples, zero)

/* A thread, and what it had used at its last sample. */
struct spent {
    pid_t tid; /* as the agent calls it, and as we do */
    pid_t outer;
    uint64_t cpu_ns, when;
    uint64_t named; /* CLOCK_MONOTONIC, ns: when its name was looked at ... */
    bool in_python; /* ... as a thread of Python */
};

struct inside {
    struct trap_watch *watch; /* NULL: sampler->door is asked */
    struct found_agent agent;
    uint64_t at;      /* struct trap_samples in the process */
    uint64_t wait;    /* ns between two looks */
    uint64_t begun;   /* CLOCK_MONOTONIC, ns */
    uint64_t cost_ns; /* of a SIGTRAP, and of what makes it come */

    pthread_mutex_t lock; /* guards what follows */
    const char *ended;
    struct stacks *stacks;
    struct trap_samples *read;
    struct kernel_record record;
    uint64_t next;                      /* number of the sample that comes next */
    uint64_t unfinished, unfinished_at; /* one that is waited for, and since when */
    struct spent *threads;              /* ascending by tid */
    size_t n, alloc;
    uint64_t taken, daemon_ns, blocking, counted;
};

/* ---- what takes the daemon's rights ---- */

static int ask(struct sampler *sampler, struct inside *inside, const struct trap_ask *asked,
               struct text *why)
{
    const struct sampler_door *door = sampler->door;
    struct trap_told told;

    if (door)
        door->ask_traps(door->arg, asked, &told);
    else
        trap_watch_do(inside->watch, asked, sampler->interrupt, &told);
    if (asked->op == TRAP_SEND)
        inside->cost_ns = told.cost_ns;
    if (why)
        text_puts(why, told.why);
    return told.error;
}

/* ---- threads ---- */

static pid_t outer_tid(struct target *target, pid_t tid)
{
    struct lwp_list list;
    pid_t outer = tid;

    if (!target->foreign || lwp_list_read(target->pid, LWP_STATES, &list) < 0)
        return outer;
    const struct lwp *lwp = lwp_find_inner(&list, tid);
    if (lwp)
        outer = lwp->tid;
    lwp_list_deinit(&list);
    return outer;
}

static struct spent *find_thread(struct sampler *sampler, struct inside *inside, pid_t tid)
{
    size_t low = LOWER_BOUND(inside->n, i, inside->threads[i].tid < tid);

    if (low < inside->n && inside->threads[low].tid == tid)
        return &inside->threads[low];
    if (inside->n >= THREADS_MAX) /* most have ended: those that haven't are learned again */
        inside->n = low = 0;
    if (ARRAY_GROW(inside->threads, inside->alloc, inside->n + 1) < 0)
        return NULL;
    memmove(&inside->threads[low + 1], &inside->threads[low],
            (inside->n - low) * sizeof *inside->threads);
    inside->n++;
    inside->threads[low] = (struct spent){.tid = tid, .outer = outer_tid(sampler->target, tid)};
    return &inside->threads[low];
}

/* What its threads used before the profile isn't part of it. */
static int note_threads(struct sampler *sampler, struct inside *inside)
{
    struct lwp_list list = {0};

    int r = lwp_list_read(sampler->target->pid, LWP_STATES, &list);
    for (size_t i = 0; r == 0 && i < list.n; i++) {
        const struct lwp *lwp = &list.items[i];
        struct runs runs;
        if (runs_read(sampler->target->pid, lwp->tid, &runs) < 0)
            continue;
        struct spent *spent = find_thread(sampler, inside, lwp->inner_tid);
        r = spent ? 0 : -ENOMEM;
        if (spent)
            *spent = (struct spent){.tid = lwp->inner_tid,
                                    .outer = lwp->tid,
                                    .cpu_ns = runs.ns,
                                    .when = monotonic_ns()};
    }
    lwp_list_deinit(&list);
    return r;
}

static void name_thread(struct sampler *sampler, struct spent *spent,
                        const struct trap_sample *sample)
{
    uint64_t now = monotonic_ns();

    if (spent->named && now - spent->named < NAMES_NS && (spent->in_python || !sample->interp))
        return;
    spent->named = now;
    spent->in_python = sample->interp;
    _guard_mutex_(&sampler->target->lock);
    if (sample->interp)
        sampler_names_begin(sampler->names, sample->interp, NAMES_NS / 10);
    sampler_names_thread(sampler->names, sample->interp, sample->thread, spent->outer);
}

/* ---- samples ---- */

_Static_assert(TRAP_FRAMES_MAX <= KERNEL_FRAMES_MAX, "frames");
_Static_assert(TRAP_FRAME_GENERATOR == FRAME_GENERATOR, "frames");
_Static_assert(sizeof(struct trap_frame) == sizeof(struct kernel_frame), "frames");

/* Nanoseconds since its last sample: no more than have passed. */
static uint64_t weigh(const struct spent *spent, const struct trap_sample *sample, uint64_t begun)
{
    uint64_t before = spent->cpu_ns <= sample->cpu_ns ? spent->cpu_ns : 0; /* a new thread */
    uint64_t from = spent->when ? spent->when : begun;
    uint64_t passed = sample->when > from ? sample->when - from : 0;
    uint64_t spent_ns = sample->cpu_ns - before;

    return spent_ns < passed ? spent_ns : passed;
}

static int take(struct sampler *sampler, struct inside *inside, const struct trap_sample *sample)
{
    struct kernel_record *record = &inside->record;
    struct spent *spent = find_thread(sampler, inside, sample->tid);
    struct store_place *place;
    const uint32_t *ids;

    if (!spent)
        return -ENOMEM;
    uint64_t weight = weigh(spent, sample, inside->begun);
    spent->cpu_ns = sample->cpu_ns;
    spent->when = sample->when;
    record->kind = KERNEL_CPU; /* all else that it has is 0 */
    record->flags = sample->flags & TRAP_SAMPLE_CUT ? RECORD_CUT : 0;
    record->n = sample->n < TRAP_FRAMES_MAX ? sample->n : TRAP_FRAMES_MAX;
    memcpy(record->frames, sample->frames, record->n * sizeof *record->frames);
    ssize_t n = stacks_resolve(inside->stacks, record, NULL, &ids, &place);
    if (n < 0)
        return (int)n;
    name_thread(sampler, spent, sample);
    inside->taken++;
    const struct sample added = {
        .when = sample->when,
        .tid = spent->outer,
        .kind = SAMPLE_CPU,
        .gil = sample->flags & TRAP_SAMPLE_GIL && !sampler->target->runtime.free_threaded,
        .weight = (int64_t)weight,
        .place = place,
        .frames = ids,
        .n = (size_t)n,
    };
    return store_add(sampler->store, &added);
}

static int read_head(struct sampler *sampler, struct inside *inside)
{
    int r = memory_read(&sampler->target->memory, inside->at, inside->read, HEAD);

    return r < 0 ? r : inside->read->magic == TRAP_SAMPLES_MAGIC ? 0 : -EFAULT;
}

/* Whether a sample was written to the end. Its slot may be left for ever, by who finds that another
 * one is still written there: then it is lost. */
static bool wait_for(struct inside *inside, uint64_t number, const struct trap_sample *sample)
{
    uint64_t now = monotonic_ns();

    if (sample->turn > number)
        return false;
    if (inside->unfinished != number || !inside->unfinished_at) {
        inside->unfinished = number;
        inside->unfinished_at = now;
    }
    return now - inside->unfinished_at < UNFINISHED_NS;
}

/* Takes those that lie behind each other in memory. *more: there may be others. */
static int read_some(struct sampler *sampler, struct inside *inside, bool *more)
{
    struct trap_samples *read = inside->read;
    uint64_t first = inside->next, slot = first % TRAP_SAMPLES_MAX, n = read->next - first;

    n = n < TRAP_SAMPLES_MAX - slot ? n : TRAP_SAMPLES_MAX - slot;
    *more = n > 0;
    if (!n)
        return 0;
    int r =
        memory_read(&sampler->target->memory,
                    inside->at + offsetof(struct trap_samples, slot) + slot * sizeof *read->slot,
                    &read->slot[slot], n * sizeof *read->slot);
    if (r == 0)
        r = read_head(sampler, inside); /* what was written meanwhile */
    for (uint64_t i = first; r == 0 && i < first + n; i++) {
        const struct trap_sample *sample = &read->slot[i % TRAP_SAMPLES_MAX];
        bool good = sample->turn == i + 1 && read->next - i <= TRAP_SAMPLES_MAX;
        if (!good && wait_for(inside, i, sample)) {
            *more = false;
            return 0;
        }
        inside->next = i + 1;
        if (good)
            r = take(sampler, inside, sample);
        else
            store_lose(sampler->store, 1);
    }
    return r;
}

static int read_all(struct sampler *sampler, struct inside *inside)
{
    bool more = true;

    int r = read_head(sampler, inside);
    while (r == 0 && more) {
        uint64_t behind = inside->read->next - inside->next;
        if (behind > TRAP_SAMPLES_MAX) { /* a hostile one may have gone back */
            store_lose(sampler->store, behind < INT32_MAX ? behind - TRAP_SAMPLES_MAX : 0);
            inside->next = inside->read->next - TRAP_SAMPLES_MAX;
        }
        r = read_some(sampler, inside, &more);
    }
    return r;
}

static void collect(struct sampler *sampler)
{
    struct inside *inside = sampler->of;
    uint64_t cpu = thread_cpu_ns();
    _guard_mutex_(&inside->lock);

    (void)read_all(sampler, inside);
    inside->daemon_ns += thread_cpu_ns() - cpu;
}

/* ---- the source ---- */

/* Why no event may be open; NULL: they may. With a door, that is looked after where it leads. */
static const char *why_not(struct sampler *sampler, struct inside *inside)
{
    const struct probe_agent_record *record = &inside->agent.record;

    if (found_agent_refresh(&sampler->target->memory, &inside->agent) < 0 || !inside->agent.running)
        return "the agent has ended, or another daemon has it";
    if (record->samples != inside->at || !record->trap)
        return "SIGTRAP has no handler of the agent's any more";
    return inside->watch ? trap_watch_look(inside->watch) : NULL;
}

static void inside_free(struct inside *inside)
{
    trap_watch_free(inside->watch);
    stacks_free(inside->stacks);
    free(inside->threads);
    free(inside->read);
    pthread_mutex_destroy(&inside->lock);
    free(inside);
}

/* Has the agent's handler stand. */
static int prepare(struct sampler *sampler, struct inside *inside, struct text *why)
{
    struct target *target = sampler->target;
    struct trap_ask asked = {.op = TRAP_HANDLE};

    int r = target_find(target);
    if (r < 0)
        return r;
    if (agent_found(target, &inside->agent) == 0 && inside->agent.running)
        asked.tid = outer_tid(target, inside->agent.record.channel_tid);
    pthread_mutex_lock(&target->lock);
    if (gil_interval_find(&target->memory, &target->runtime, 0, &asked.gil_interval) < 0)
        asked.gil_interval = 0;
    pthread_mutex_unlock(&target->lock);
    r = ask(sampler, inside, &asked, why);
    if (r < 0)
        return r;
    r = agent_found(target, &inside->agent);
    inside->at = r == 0 ? inside->agent.record.samples : 0;
    if (r == 0 && (!inside->at || read_head(sampler, inside) < 0))
        r = -EPROTO;
    if (r < 0)
        text_puts(why, "its samples can't be read");
    else
        inside->next = inside->read->next;
    return r;
}

static int send(struct sampler *sampler, struct inside *inside, struct text *why)
{
    const struct trap_ask asked = {.op = TRAP_SEND};
    int r = note_threads(sampler, inside);

    inside->begun = monotonic_ns();
    return r < 0 ? r : ask(sampler, inside, &asked, why);
}

static int begin(struct sampler *sampler, struct inside *inside, struct text *why)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t rate = (uint64_t)sampler->options.hz * (processors > 0 ? (uint64_t)processors : 1);

    inside->wait = UINT64_C(1000000000) * (TRAP_SAMPLES_MAX / 4) / rate;
    if (inside->wait > LOOK_NS_MAX || inside->wait < LOOK_NS_MIN)
        inside->wait = inside->wait > LOOK_NS_MAX ? LOOK_NS_MAX : LOOK_NS_MIN;
    inside->read = malloc(sizeof *inside->read);
    int r = inside->read
                ? stacks_new(sampler->target, sampler->names, NULL, sampler->store, &inside->stacks)
                : -ENOMEM;
    if (r == 0 && !sampler->door)
        r = trap_watch_new(sampler->target, sampler->options.tid, sampler->options.hz,
                           &inside->watch, why);
    if (r == 0)
        r = prepare(sampler, inside, why);
    if (r == 0)
        r = send(sampler, inside, why);
    return r;
}

static int start(struct sampler *sampler, struct text *why)
{
    if (sampler->options.modes & ~sampler_inside.modes) {
        text_puts(why, "it sees processor time only: cpu, gil, nogil");
        return -EOPNOTSUPP;
    }
    struct inside *inside = calloc(1, sizeof *inside);
    if (!inside)
        return -ENOMEM;
    pthread_mutex_init(&inside->lock, NULL);
    int r = begin(sampler, inside, why);
    if (r < 0) {
        inside_free(inside);
        return r == -ESRCH && target_alive(sampler->target) ? -EAGAIN : r;
    }
    sampler->of = inside;
    return 0;
}

static void stop(struct sampler *sampler) { inside_free(sampler->of); }

static uint64_t tick(struct sampler *sampler, uint64_t now)
{
    struct inside *inside = sampler->of;

    if (!target_alive(sampler->target))
        return UINT64_MAX;
    const char *words = why_not(sampler, inside);
    if (words) {
        (void)ask(sampler, inside, &(struct trap_ask){.op = TRAP_SILENCE}, NULL);
        _guard_mutex_(&inside->lock);
        inside->ended = words;
        return UINT64_MAX;
    }
    collect(sampler);
    if (now - inside->counted > BLOCKING_NS) {
        size_t blocking = watch_blocking(sampler->target->pid);
        _guard_mutex_(&inside->lock);
        inside->blocking = blocking;
        inside->counted = now;
    }
    return now + inside->wait;
}

static void figures(struct sampler *sampler, struct sampler_figures *out)
{
    struct inside *inside = sampler->of;
    _guard_mutex_(&inside->lock);

    *out = (struct sampler_figures){
        .target_ns = inside->read->ns + inside->taken * inside->cost_ns,
        .daemon_ns = inside->daemon_ns,
        .missing = sampler->options.modes & ~sampler_inside.modes,
    };
    if (inside->ended)
        snprintf(out->note, sizeof out->note, "it has ended: %s", inside->ended);
    else if (inside->blocking)
        snprintf(out->note, sizeof out->note, "%lu threads block SIGTRAP, and aren't seen",
                 (unsigned long)inside->blocking);
    else
        snprintf(out->note, sizeof out->note,
                 "time in the kernel counts for the next Python function outside of it");
}

const struct sampler_source sampler_inside = {
    .name = "inside",
    .modes = SAMPLER_MODE(MODE_CPU) | SAMPLER_MODE(MODE_GIL) | SAMPLER_MODE(MODE_NOGIL),
    .start = start,
    .stop = stop,
    .tick = tick,
    .collect = collect,
    .figures = figures,
};
