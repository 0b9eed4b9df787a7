/* The source for where the kernel takes no samples itself, but an agent is in the process: the
 * kernel sends SIGTRAP to a thread whose quantum of processor time has ended, and the agent's
 * handler takes down where it is (agent/sample/). The events are opened here, so that they end with
 * this daemon, however it ends; the handler stands before the first one is opened, and until the
 * last one is closed.
 *
 * It sees a thread in user mode only. What a sample weighs is what the thread's own clock says that
 * it has used since the last one, so that time in the kernel counts for where it went on after it,
 * and no time is lost with a sample. A thread that blocks SIGTRAP isn't seen. */
#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "agent/wire/trap_samples.h"
#include "fs/base/array.h"
#include "fs/inject/seccomp.h"
#include "fs/link/attach.h"
#include "fs/link/found.h"
#include "fs/proc/lwp.h"
#include "fs/proc/procfs.h"
#include "fs/proc/runs.h"
#include "fs/remote/frames/gil.h"
#include "fs/sampler/bpf/perf_events.h"
#include "fs/sampler/sampler.h"
#include "fs/sampler/stacks.h"
#include "fs/trace/tracer.h"
#include "fs/watch/by_perf.h"
#include "fs/watch/registers.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#define GIL_NS 10000000000ull /* for the agent to get the GIL */
#define END_NS 1000000000u    /* ... and to hear that nothing comes any more */
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
    struct session *session;
    struct found_agent agent;
    struct by_perf *events; /* NULL: there are none any more, `ended` says why */
    int stat;               /* for watch_handled() */
    int filters;            /* of seccomp that each thread has */
    uint64_t at;            /* struct trap_samples in the process */
    uint64_t wait;          /* ns between two looks */
    uint64_t begun;         /* CLOCK_MONOTONIC, ns */

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

static pthread_once_t cost_once = PTHREAD_ONCE_INIT;
static uint64_t cost_ns; /* of a SIGTRAP, and of what makes it come */

static void measure(void) { cost_ns = perf_events_cost(true); }

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

/* Another process traces it, as a debugger does: it would be told of each SIGTRAP. */
static bool is_debugged(pid_t pid)
{
    char path[48];
    pid_t tracer = proc_tracer(pid);

    snprintf(path, sizeof path, "/proc/self/task/%d", (int)tracer);
    return tracer && access(path, F_OK) < 0 && !tracer_brief(tracer);
}

/* ---- seccomp filters ---- */

static const char own_filters[] =
    "threads of it have seccomp filters of their own, which may forbid what a handler calls";

struct filters {
    pid_t tid; /* whose */
    struct text *why;
};

static int stop_and_check(struct tracer *tracer, void *arg)
{
    struct filters *filters = arg;
    uint64_t ns;

    int r = tracer_stop(tracer, filters->tid);
    if (r == 0)
        r = seccomp_check(filters->tid, SECCOMP_SAMPLE, 0, filters->why);
    tracer_resume(tracer, &ns);
    return r;
}

/* Whether each thread has so many filters. */
static bool all_have(pid_t pid, int filters)
{
    _cleanup_free_ pid_t *tids = NULL;
    size_t n;
    bool same = watch_threads(pid, &tids, &n) == 0;

    for (size_t i = 0; same && i < n; i++) {
        int count = seccomp_count(tids[i]);
        same = count == filters || count == -ESRCH;
    }
    return same;
}

/* Whether the filters of all threads let the handler make its calls: they are read in the agent's
 * own thread, whose calls nobody misses, and all have as many as that. */
static int check_filters(struct sampler *sampler, struct inside *inside, struct text *why)
{
    struct target *target = sampler->target;
    struct filters filters = {.why = why};
    int count = seccomp_count(target->pid);

    inside->filters = count;
    if (count < 0 || !all_have(target->pid, count)) {
        text_puts(why, own_filters);
        return -EPERM;
    }
    if (!count)
        return 0;
    int r = agent_found(target, &inside->agent);
    if (r == 0) {
        filters.tid = outer_tid(target, inside->agent.record.channel_tid);
        _guard_mutex_(&target->tracing);
        r = tracer_run(stop_and_check, &filters);
    }
    if (r == 0 && seccomp_count(filters.tid) != count) {
        text_puts(why, own_filters);
        r = -EPERM;
    }
    if (r < 0 && !why->size)
        text_printf(why, "its seccomp filters can't be read: %s", strerror(-r));
    return r;
}

/* ---- whether it may go on ---- */

/* Why no event may be open; NULL: they may. */
static const char *why_not(struct sampler *sampler, struct inside *inside)
{
    const struct probe_agent_record *record = &inside->agent.record;

    if (found_agent_refresh(&sampler->target->memory, &inside->agent) < 0 ||
        !inside->agent.running || !session_alive(inside->session))
        return "the agent has ended, or another daemon has it";
    if (record->samples != inside->at || !record->trap || !watch_handled(inside->stat))
        return "SIGTRAP has no handler of the agent's any more";
    if (seccomp_count(sampler->target->pid) != inside->filters)
        return own_filters;
    return is_debugged(sampler->target->pid) ? "the process is traced by a debugger" : NULL;
}

/* Since Linux 5.18 a thread that blocks SIGTRAP is told later; before, the process was killed. */
static bool kernel_waits(void)
{
    struct utsname system;
    unsigned major = 0, minor = 0;

    return uname(&system) == 0 && sscanf(system.release, "%u.%u", &major, &minor) == 2 &&
           (major > 5 || (major == 5 && minor >= 18));
}

static int order(struct sampler *sampler, struct session *session, bool on, struct proto_done *done)
{
    struct target *target = sampler->target;
    struct proto_samples order = {.on = on};

    pthread_mutex_lock(&target->lock);
    if (gil_interval_find(&target->memory, &target->runtime, 0, &order.gil_interval) < 0)
        order.gil_interval = 0;
    pthread_mutex_unlock(&target->lock);
    *done = (struct proto_done){0};
    return session_order(session, PROTO_SAMPLES, &order, sizeof order, on ? GIL_NS : END_NS,
                         on ? sampler->interrupt : NULL, done);
}

static void inside_free(struct sampler *sampler, struct inside *inside)
{
    struct proto_done done;

    by_perf_free(inside->events);
    if (inside->at)
        (void)order(sampler, inside->session, false, &done);
    session_unref(inside->session);
    stacks_free(inside->stacks);
    if (inside->stat >= 0)
        close(inside->stat);
    free(inside->threads);
    free(inside->read);
    pthread_mutex_destroy(&inside->lock);
    free(inside);
}

/* disabled: only to see whether it may be. */
static struct perf_event_attr event_of(const struct sampler_options *options, bool disabled)
{
    return (struct perf_event_attr){
        .size = sizeof(struct perf_event_attr),
        .disabled = disabled,
        .type = PERF_TYPE_SOFTWARE,
        .config = PERF_COUNT_SW_TASK_CLOCK,
        .sample_period = 1000000000u / options->hz,
        .exclude_kernel = 1, /* no system call is ever interrupted */
        .exclude_hv = 1,
        .inherit = !options->tid,
        .inherit_thread = !options->tid,
        .remove_on_exec = 1,
        .sigtrap = 1,
        .sig_data = PROTO_SAMPLE_DATA,
    };
}

/* Before the agent's handler is put in place for nothing. */
static int try_event(struct sampler *sampler, struct text *why)
{
    const struct perf_event_attr attr = event_of(&sampler->options, true);
    struct by_perf *event = NULL;
    pid_t pid = sampler->target->pid;

    int r = by_perf_open(pid, pid, &attr, false, &event, why);
    by_perf_free(event);
    return r;
}

/* Has the agent's handler stand. */
static int prepare(struct sampler *sampler, struct inside *inside, struct text *why)
{
    struct target *target = sampler->target;
    struct proto_done done = {0};

    int r = agent_connect(target, why, &inside->session);
    if (r == -ENOTCONN)
        text_clear(why);
    if (r == -ENOTCONN)
        text_puts(why, "no agent is in the process; `profile cpu inside` puts one in");
    if (r < 0)
        return r;
    r = target_find(target);
    if (r == 0)
        r = try_event(sampler, why);
    if (r == 0)
        r = check_filters(sampler, inside, why);
    if (r < 0)
        return r;
    r = order(sampler, inside->session, true, &done);
    if (r < 0 && done.words[0])
        text_add_escaped(why, done.words, strnlen(done.words, sizeof done.words));
    else if (r < 0)
        text_printf(why, "the agent isn't ready for it: %s", strerror(-r));
    if (r == 0)
        r = agent_found(target, &inside->agent);
    inside->at = r == 0 ? inside->agent.record.samples : 0;
    if (r == 0 && (!inside->at || read_head(sampler, inside) < 0))
        r = -EPROTO;
    if (r < 0 && !why->size)
        text_puts(why, "its samples can't be read");
    if (r == 0)
        inside->next = inside->read->next;
    return r;
}

static int open_events(struct sampler *sampler, struct inside *inside, struct text *why)
{
    const struct perf_event_attr attr = event_of(&sampler->options, false);
    int r = note_threads(sampler, inside);

    inside->begun = monotonic_ns();
    inside->stat = watch_open_stat(sampler->target->pid);
    if (r == 0 && inside->stat < 0)
        r = inside->stat;
    if (r < 0)
        return r;
    const char *words = why_not(sampler, inside);
    if (words) {
        text_puts(why, words);
        return -EBUSY;
    }
    return by_perf_open(sampler->target->pid, sampler->options.tid, &attr, true, &inside->events,
                        why);
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
    if (r == 0)
        r = prepare(sampler, inside, why);
    if (r == 0)
        r = open_events(sampler, inside, why);
    return r;
}

static int start(struct sampler *sampler, struct text *why)
{
    if (sampler->options.modes & ~sampler_inside.modes) {
        text_puts(why, "it sees processor time only: cpu, gil, nogil");
        return -EOPNOTSUPP;
    }
    if (!kernel_waits()) {
        text_puts(why, "before Linux 5.18 a thread that blocks SIGTRAP would be killed");
        return -EOPNOTSUPP;
    }
    struct inside *inside = calloc(1, sizeof *inside);
    if (!inside)
        return -ENOMEM;
    pthread_mutex_init(&inside->lock, NULL);
    inside->stat = -1;
    int r = begin(sampler, inside, why);
    if (r < 0) {
        inside_free(sampler, inside);
        return r == -ESRCH && target_alive(sampler->target) ? -EAGAIN : r;
    }
    pthread_once(&cost_once, measure);
    sampler->of = inside;
    return 0;
}

static void stop(struct sampler *sampler) { inside_free(sampler, sampler->of); }

static uint64_t tick(struct sampler *sampler, uint64_t now)
{
    struct inside *inside = sampler->of;

    if (!target_alive(sampler->target))
        return UINT64_MAX;
    const char *words = why_not(sampler, inside);
    if (words) {
        by_perf_free(steal_pointer(inside->events));
        _guard_mutex_(&inside->lock);
        inside->ended = words;
        return UINT64_MAX;
    }
    by_perf_follow(inside->events);
    collect(sampler);
    if (now - inside->counted > BLOCKING_NS) {
        size_t blocking = watch_blocking(sampler->target->pid);
        if (!all_have(sampler->target->pid, inside->filters))
            inside->filters = -EPERM; /* it ends with the next look */
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
        .target_ns = inside->read->ns + inside->taken * cost_ns,
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
