#include "fs/sampler/bpf/kernel_watch.h"

#include "agent/base/cleanup.h"
#include "fs/proc/procfs.h"
#include "fs/sampler/bpf/perf_events.h"
#include "fs/sampler/bpf/program.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RING_MIN (1u << 18)  /* bytes; about half a second of samples, ... */
#define RING_MAX (1u << 24)  /* ... up to that, ... */
#define RINGS_MAX (1u << 29) /* ... and less where all together have more than a part of this */
#define RINGS_SHARE 8
#define RECORD_USUAL 1024 /* bytes of a sample, to reckon with */
#define FAULTS_PERIOD 1   /* pages */

struct kernel_watch {
    struct kernel_wish wish;
    struct program *program;
    struct perf_events clocks, faults;
    uint32_t slot, serial, ring_bytes;
    bool watched, hears, slotted;
};

/* ---- slots ---- */

static struct {
    pthread_mutex_t lock;
    bool taken[KERNEL_SLOTS];
    uint32_t serial;
    uint64_t ring_bytes; /* of all of them */
} slots = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int slot_take(struct kernel_watch *w, struct text *why)
{
    _guard_mutex_(&slots.lock);

    for (uint32_t i = 0; i < KERNEL_SLOTS; i++)
        if (!slots.taken[i]) {
            w->slotted = slots.taken[i] = true;
            w->slot = i;
            w->serial = ++slots.serial;
            return 0;
        }
    text_printf(why, "%d processes are profiled already", KERNEL_SLOTS);
    return -ENOSPC;
}

static void slot_give(struct kernel_watch *w)
{
    _guard_mutex_(&slots.lock);
    slots.taken[w->slot] = false;
    slots.ring_bytes -= w->ring_bytes;
}

/* How large its ring is to be, [bytes]: less where those of all profiles have become many. */
static uint32_t ring_size(struct kernel_watch *w)
{
    _guard_mutex_(&slots.lock);
    uint64_t one = RECORD_USUAL + (w->wish.native ? KERNEL_STACK_PIECE : 0), wanted,
             size = RING_MIN;
    uint64_t each = w->wish.off ? 1000000000u / KERNEL_WINDOW_NS * (uint64_t)KERNEL_WINDOW_SWITCHES
                                : 0;

    wanted = (w->wish.hz + each) * (uint64_t)sysconf(_SC_NPROCESSORS_ONLN) * one / 2;
    uint64_t room = slots.ring_bytes < RINGS_MAX ? (RINGS_MAX - slots.ring_bytes) / RINGS_SHARE : 0;
    while (size < wanted && size < RING_MAX && 2 * size <= room)
        size *= 2;
    slots.ring_bytes += size;
    return w->ring_bytes = (uint32_t)size;
}

/* ---- figures of the program ---- */

/* Sums the figures of all processors up. */
static int sum_figures(const struct kernel_watch *w, struct kernel_figures *out)
{
    unsigned n = w->program->processors;
    _cleanup_free_ struct kernel_figures *each = calloc(n, sizeof *each);

    int r = each ? map_get(w->program->maps[MAP_FIGURES], &w->slot, each) : -ENOMEM;
    for (unsigned i = 0; i < n && r == 0; i++) {
        out->samples += each[i].samples;
        out->lost += each[i].lost;
        out->no_stack += each[i].no_stack;
        out->unreadable += each[i].unreadable;
        out->switches += each[i].switches;
        out->ns += each[i].ns;
    }
    return r;
}

static int clear_figures(const struct kernel_watch *w)
{
    _cleanup_free_ struct kernel_figures *each = calloc(w->program->processors, sizeof *each);

    return each ? map_set(w->program->maps[MAP_FIGURES], &w->slot, each) : -ENOMEM;
}

/* ---- what the program is told ---- */

static bool is_field(int32_t offset, int32_t least, int32_t size, int32_t frame_size)
{
    return offset >= least && offset <= frame_size - size;
}

/* Whether the program can read frames that lie so. */
static bool is_sane(const struct kernel_watched *of)
{
    int32_t size = of->frame_size;

    return size > 0 && size < KERNEL_FRAME_BYTES && is_field(of->frame_previous, 0, 8, size) &&
           is_field(of->frame_code, 0, 8, size) && is_field(of->frame_instr, 0, 8, size) &&
           is_field(of->frame_owner, -1, 1, size) && is_field(of->frame_entry, -1, 1, size);
}

static uint32_t flags_of(const struct kernel_wish *wish)
{
    bool inherited = (wish->clock || wish->faults) && !wish->tid;

    return (wish->off ? WATCHED_SWITCHES : 0) | (wish->native ? WATCHED_NATIVE : 0) |
           (wish->children ? WATCHED_CHILDREN : 0) | (inherited ? WATCHED_EVENTS : 0);
}

static int watch(struct kernel_watch *w, const struct kernel_watched *described, int *ring)
{
    struct kernel_watched watched = *described;
    uint32_t pid = (uint32_t)w->wish.pid;

    if (w->watched || w->ring_bytes || !is_sane(&watched))
        return -EINVAL;
    watched.slot = w->slot;
    watched.serial = w->serial;
    watched.flags = flags_of(&w->wish) | (described->flags & WATCHED_TASKS);
    int fd = map_new_ring(ring_size(w));
    int r = fd < 0 ? fd : clear_figures(w);
    if (r == 0)
        r = map_set(w->program->maps[MAP_RINGS], &w->slot, &fd);
    if (r == 0)
        r = map_set(w->program->maps[MAP_WATCHED], &pid, &watched);
    w->watched = r == 0;
    if (r == 0)
        *ring = fd;
    else if (fd >= 0)
        close(fd);
    return r;
}

/* Who bears the number may have ended, and another process be watched by it. */
static int tell_tasks(const struct kernel_watch *w, const struct kernel_watched *described)
{
    int map = w->program->maps[MAP_WATCHED];
    uint32_t pid = (uint32_t)w->wish.pid;
    struct kernel_watched watched;

    int r = map_get(map, &pid, &watched);
    if (r < 0 || watched.serial != w->serial)
        return r;
    watched.running = described->running;
    watched.tstate_task = described->tstate_task;
    watched.dict_keys = described->dict_keys;
    watched.keys_nentries = described->keys_nentries;
    watched.keys_indices = described->keys_indices;
    watched.keys_log2_index_bytes = described->keys_log2_index_bytes;
    watched.keys_size = described->keys_size;
    watched.task_coro = described->task_coro;
    watched.task_name = described->task_name;
    watched.task_callback = described->task_callback;
    watched.task_waiter = described->task_waiter;
    watched.gen_frame = described->gen_frame;
    watched.gen_frame_points = described->gen_frame_points;
    watched.flags |= described->flags & WATCHED_TASKS;
    return map_set(map, &pid, &watched);
}

/* Calls each() with the number of each process that is watched for this one, until it says true. */
static bool any_watched(const struct kernel_watch *w,
                        bool (*each)(int map, uint32_t pid, void *arg), void *arg)
{
    int map = w->program->maps[MAP_WATCHED];
    struct kernel_watched watched;
    uint32_t key, next;

    for (int r = map_next(map, NULL, &next); r == 0; r = map_next(map, &key, &next)) {
        key = next;
        if (map_get(map, &key, &watched) == 0 && watched.serial == w->serial && each(map, key, arg))
            return true;
    }
    return false;
}

static bool drop(int map, uint32_t pid, void *arg)
{
    bool *found = arg;

    *found |= map_drop(map, &pid) == 0;
    return false;
}

static void unwatch(const struct kernel_watch *w)
{
    bool found = true;

    while (found) { /* a fork may copy an entry meanwhile */
        found = false;
        any_watched(w, drop, &found);
    }
}

/* ---- events ---- */

static bool has_thread(int map, uint32_t pid, void *arg)
{
    const int32_t *tid = arg;

    return proc_has_thread((pid_t)pid, *tid);
}

static bool is_its(const struct kernel_watch *w, int32_t tid)
{
    return proc_has_thread(w->wish.pid, tid) ||
           (w->wish.children && any_watched(w, has_thread, &tid));
}

/* A thread that started before its parent had an event. */
static void equip(struct kernel_watch *w, int32_t tid, bool anew)
{
    if (!is_its(w, tid))
        return;
    if (w->clocks.n)
        perf_events_add(&w->clocks, tid, anew);
    if (w->faults.n)
        perf_events_add(&w->faults, tid, anew);
}

static int open_events(struct kernel_watch *w, struct perf_events *events, uint64_t config,
                       uint64_t period, enum kernel_part part, struct text *why)
{
    int fd = program_part(w->program, part, why);

    if (fd < 0 || events->n)
        return fd < 0 ? fd : -EINVAL;
    return perf_events_open(events, w->wish.pid, w->wish.tid, config, period, w->wish.children, fd,
                            why);
}

static int sample(struct kernel_watch *w, struct text *why)
{
    int r = 0;

    if (w->wish.clock)
        r = open_events(w, &w->clocks, PERF_COUNT_SW_TASK_CLOCK, 1000000000u / w->wish.hz,
                        PART_SAMPLED, why);
    if (r == 0 && w->wish.faults)
        r = open_events(w, &w->faults, PERF_COUNT_SW_PAGE_FAULTS, FAULTS_PERIOD, PART_FAULTED, why);
    return r;
}

static void silence(struct kernel_watch *w)
{
    perf_events_deinit(&w->clocks);
    perf_events_deinit(&w->faults);
}

static int hear(struct kernel_watch *w, struct text *why)
{
    int r = w->hears || !w->wish.off ? -EINVAL : program_hear_switches(w->program, why);

    w->hears |= r == 0;
    return r;
}

/* ---- the whole ---- */

int kernel_watch_new(const struct kernel_wish *wish, struct kernel_watch **out, struct text *why)
{
    struct kernel_watch *w = calloc(1, sizeof *w);

    if (!w)
        return -ENOMEM;
    w->wish = *wish;
    int r = program_get(&w->program, why);
    if (r == 0)
        r = slot_take(w, why);
    if (r < 0) {
        kernel_watch_free(w);
        return r;
    }
    *out = w;
    return 0;
}

void kernel_watch_free(struct kernel_watch *w)
{
    if (!w)
        return;
    silence(w);
    if (w->hears)
        program_ignore_switches(w->program);
    if (w->watched)
        unwatch(w);
    if (w->slotted) {
        map_drop(w->program->maps[MAP_RINGS], &w->slot);
        slot_give(w);
    }
    program_put(w->program);
    free(w);
}

static int do_asked(struct kernel_watch *w, const struct kernel_ask *ask, struct kernel_told *told,
                    struct text *why)
{
    switch ((enum kernel_op)ask->op) {
    case KERNEL_WATCH:
        told->serial = w->serial;
        told->event_ns = w->program->event_ns;
        int r = watch(w, &ask->watched, &told->fd);
        told->ring = w->ring_bytes;
        if (r < 0)
            text_printf(why, "a BPF map can't be made: %s", strerror(-r));
        return r;
    case KERNEL_HEAR: return hear(w, why);
    case KERNEL_SAMPLE: return sample(w, why);
    case KERNEL_EQUIP: equip(w, ask->tid, ask->anew); return 0;
    case KERNEL_VARY: told->ns = perf_events_vary(&w->clocks, ask->tid); return 0;
    case KERNEL_TASKS: return tell_tasks(w, &ask->watched);
    case KERNEL_FIGURES: return sum_figures(w, &told->figures);
    case KERNEL_SILENCE: silence(w); return 0;
    }
    return -EINVAL;
}

void kernel_watch_do(struct kernel_watch *w, const struct kernel_ask *ask, struct kernel_told *told)
{
    _cleanup_(text_deinit) struct text why = TEXT_INIT;

    memset(told, 0, sizeof *told);
    told->fd = -1;
    told->error = do_asked(w, ask, told, &why);
    if (why.size)
        snprintf(told->why, sizeof told->why, "%s", text_finish(&why) == 0 ? why.data : "");
}
