#include "fs/remote/moment/caches.h"
#include "fs/remote/moment/snapshot.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/array.h"
#include "fs/proc/lwp.h"
#include "fs/remote/memory/core.h"
#include "fs/remote/frames/names.h"
#include "fs/remote/moment/capture.h"
#include "fs/remote/moment/moment.h"
#include "fs/remote/moment/snapshot_frames.h"
#include "fs/trace/tracer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define READ_TRIES 3

struct reading {
    struct target *target;
    const struct snapshot_options *options;
    struct lwp_list lwps;
    struct capture capture;
    struct moment moment;
    struct snapshot *snapshot;
    bool again;   /* what was seen lacks something that a further reading gets */
    bool warm;    /* options->work has run: the view knows what it reads */
    size_t alloc; /* of snapshot->threads */
    struct frames frames;
};

void snapshot_free(struct snapshot *snapshot)
{
    if (!snapshot)
        return;
    for (size_t i = 0; i < snapshot->nthreads; i++)
        free(snapshot->threads[i].frames);
    free(snapshot->threads);
    strings_free(snapshot->strings);
    free(snapshot);
}

/* ---- one thread ---- */

static const struct gil *gil_waited_for(const struct reading *reading, const struct lwp *lwp)
{
    const struct walk *walk = reading->moment.walk;
    uint64_t size = (uint64_t)reading->target->runtime.offsets.gil_size;

    if ((lwp->syscall == LWP_FUTEX || lwp->syscall == LWP_RESTART) && walk)
        for (size_t i = 0; i < walk->ngils; i++)
            if (lwp->args[0] - walk->gils[i].addr < size)
                return &walk->gils[i];
    return NULL;
}

static void describe_state(const struct reading *reading, const struct lwp *lwp, struct thread *out)
{
    const char *name = syscall_name(lwp->syscall);

    switch (lwp->state) {
    case 'R': out->state = THREAD_RUNNING; return;
    case 'T': out->state = THREAD_STOPPED; return;
    case 't': out->state = THREAD_TRACED; return;
    case 'Z':
    case 'X': out->state = THREAD_DEAD; return;
    }
    out->waits_gil = !out->holds_gil && gil_waited_for(reading, lwp);
    out->state = out->waits_gil ? THREAD_GIL_WAIT : THREAD_IDLE;
    if (name)
        snprintf(out->wait, sizeof out->wait, "%s", name);
    else if (lwp->syscall >= 0)
        snprintf(out->wait, sizeof out->wait, "syscall %d", lwp->syscall);
    else
        snprintf(out->wait, sizeof out->wait, "unknown");
}

static void describe_fault(const struct core *core, struct thread *out)
{
    _cleanup_(text_deinit) struct text text = TEXT_INIT;

    core_add_signal(core, &text);
    out->state = THREAD_FAULTED;
    snprintf(out->wait, sizeof out->wait, "%s", text.data ? text.data : "");
}

static bool holds_gil(const struct reading *reading, const struct stack *const *stacks, size_t n)
{
    const struct walk *walk = reading->moment.walk;

    for (size_t i = 0; walk && i < walk->ngils; i++)
        for (size_t k = 0; walk->gils[i].locked && k < n; k++)
            if (walk->gils[i].holder == stacks[k]->tstate)
                return true;
    return false;
}

static bool has_frame(const struct stack *stack, uint64_t addr)
{
    for (size_t i = 0; i < stack->n; i++)
        if (stack->frames[i].addr == addr)
            return true;
    return false;
}

/* The thread that collects garbage is the one with the frame in which that began, or the only one.
 */
static enum collecting collecting_of(const struct walk *walk, const struct offsets *o,
                                     const struct stack *stack)
{
    size_t n = 0;

    if (o->interp_gc_collecting < 0) /* 3.8 */
        return COLLECTING_UNKNOWN;
    if (!stack->interp_collects)
        return COLLECTING_NO;
    for (size_t i = 0; i < walk->n; i++) {
        const struct stack *s = &walk->stacks[i];
        if (s->interp != stack->interp)
            continue;
        if (stack->gc_frame && has_frame(s, stack->gc_frame))
            return s == stack ? COLLECTING_YES : COLLECTING_NO;
        n++;
    }
    return n == 1 ? COLLECTING_YES : COLLECTING_UNKNOWN;
}

static void add_states(const struct reading *reading, const struct stack *const *stacks, size_t n,
                       struct thread *out)
{
    const struct offsets *offsets = &reading->target->runtime.offsets;

    for (size_t i = 0; i < n; i++) {
        enum collecting collecting = collecting_of(reading->moment.walk, offsets, stacks[i]);
        out->handles_exception |= stacks[i]->handles_exception;
        if (out->collecting != COLLECTING_YES && collecting != COLLECTING_NO)
            out->collecting = collecting;
    }
}

/* The name by which the main interpreter knows it, else the innermost one, or another one that the
 * thread is in: what begins to run in an interpreter doesn't know who runs it, or takes whoever
 * imports `threading` there for its main thread. NULL: none does. */
static const char *find_name(struct target *target, const struct stack *top,
                             const struct stack *const *stacks, size_t nstacks, pid_t tid)
{
    const struct offsets *offsets = &target->runtime.offsets;
    const char *name = NULL;

    for (size_t i = 0; i < nstacks && !name; i++)
        if (stacks[i]->interp_id == 0)
            name = names_find(target->names, offsets, stacks[i]->interp, stacks[i]->thread_id, tid);
    if (!name)
        name = names_find(target->names, offsets, top->interp, top->thread_id, tid);
    for (size_t i = 0; i < nstacks && !name; i++)
        name = names_find(target->names, offsets, stacks[i]->interp, stacks[i]->thread_id, tid);
    return name;
}

static struct thread *new_thread(struct reading *reading)
{
    struct snapshot *snapshot = reading->snapshot;

    if (ARRAY_GROW(snapshot->threads, reading->alloc, snapshot->nthreads + 1) < 0)
        return NULL;
    struct thread *t = &snapshot->threads[snapshot->nthreads++];
    *t = (struct thread){.state = THREAD_DEAD, .interp_id = -1};
    return t;
}

/* Adds a kernel thread with the thread states that belong to it, or (lwp NULL) a thread state whose
 * kernel thread is gone. */
static int add_thread(struct reading *reading, struct lwp *lwp, const struct stack *const *stacks,
                      size_t nstacks)
{
    struct target *target = reading->target;
    _cleanup_(thread_stack_deinit) struct thread_stack python = {0};
    const struct native_stack *native = NULL;
    const char *name = NULL;

    int r = thread_stack_collect(stacks, nstacks, &python);
    if (r < 0)
        return r;
    thread_stack_hide_agents(&python);
    struct thread *t = new_thread(reading);
    if (!t)
        return -ENOMEM;
    t->holds_gil = holds_gil(reading, stacks, nstacks);
    add_states(reading, stacks, nstacks, t);
    if (lwp) {
        uint64_t tick_ns = 1000000000u / (uint64_t)sysconf(_SC_CLK_TCK);
        t->tid = lwp->tid;
        t->is_main = lwp->tid == target_number(target);
        t->cpu_user_ns = lwp->user_ticks * tick_ns;
        t->cpu_system_ns = lwp->system_ticks * tick_ns;
        describe_state(reading, lwp, t);
        if (target->core && target->core->faulted == t->tid)
            describe_fault(target->core, t);
        if (reading->capture.stacks)
            native = &reading->capture.stacks[lwp - reading->lwps.items];
    }
    if (python.top) {
        t->tstate = python.top->tstate;
        t->thread_id = python.top->thread_id;
        t->interp_id = python.top->interp_id;
        name = find_name(target, python.top, stacks, nstacks, t->tid);
    }
    t->name = name ? strings_add(reading->snapshot->strings, name)
                   : frames_safe(&reading->frames, lwp ? lwp->comm : "?");
    if (!t->name)
        return -ENOMEM;
    return frames_add(&reading->frames, &python, native, t);
}

/* ---- all threads ---- */

static int by_order(const void *a, const void *b)
{
    const struct thread *x = a, *y = b;

    if ((x->state == THREAD_FAULTED) != (y->state == THREAD_FAULTED))
        return x->state == THREAD_FAULTED ? -1 : 1;
    if (!x->tstate != !y->tstate)
        return !x->tstate ? 1 : -1;
    if (x->interp_id != y->interp_id)
        return x->interp_id < y->interp_id ? -1 : 1;
    if (x->is_main != y->is_main)
        return x->is_main ? -1 : 1;
    return x->tid < y->tid ? -1 : x->tid > y->tid;
}

/* Thread states by kernel thread, in the order of the walk. */
static int by_tid(const void *a, const void *b)
{
    const struct stack *const *x = a, *const *y = b;

    if ((*x)->tid != (*y)->tid)
        return (*x)->tid < (*y)->tid ? -1 : 1;
    return *x < *y ? -1 : *x > *y;
}

static int add_threads(struct reading *reading)
{
    struct walk *walk = reading->moment.walk;
    size_t n = walk ? walk->n : 0, at = 0;
    _cleanup_free_ const struct stack **stacks = calloc(n + 1, sizeof *stacks);
    int r = 0;

    if (!stacks)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        stacks[i] = &walk->stacks[i];
    array_sort(stacks, n, sizeof *stacks, by_tid);
    /* those with a number have just ended; of the others it isn't known which thread they are */
    for (; at < n && !stacks[at]->tid && r == 0; at++)
        if (stacks[at]->n && !reading->options->tid && !stacks[at]->native_id)
            r = add_thread(reading, NULL, stacks + at, 1);
    for (size_t i = 0; i < reading->lwps.n && r == 0; i++) {
        struct lwp *lwp = &reading->lwps.items[i];
        while (at < n && stacks[at]->tid < lwp->tid)
            at++;
        size_t from = at;
        while (at < n && stacks[at]->tid == lwp->tid)
            at++;
        if (!reading->options->tid || reading->options->tid == lwp->tid)
            r = add_thread(reading, lwp, stacks + from, at - from);
    }
    return r;
}

static int in_moment(struct moment *moment, void *arg)
{
    struct reading *reading = arg;
    const struct snapshot_options *options = reading->options;

    int r = 0;

    if (options->work && moment->tracer && !reading->warm)
        return -EINPROGRESS; /* no thread is to wait for a first reading, copy by copy */
    if (options->work)
        r = options->work(options->arg, moment, &reading->lwps);
    reading->warm = true;
    if (r == 0 && options->native)
        r = capture_holders(&reading->capture, moment);
    return r;
}

static int run_moment(struct reading *reading)
{
    struct target *target = reading->target;
    const struct snapshot_options *options = reading->options;

    reading->warm = options->work && target->along == options->work;
    target->walk.depth = options->depth;
    int r = options->work
                ? moment_run(target, in_moment, reading, &reading->moment)
                : moment_run_each(target, options->tid, in_moment, reading, &reading->moment);
    if (r == -EINPROGRESS) { /* whatever comes of it: it tells what to copy */
        (void)options->work(options->arg, &reading->moment, &reading->lwps);
        reading->warm = true;
        r = code_cache_load(target->codes, &target->memory, &target->runtime.offsets);
        if (r == 0)
            r = moment_run(target, in_moment, reading, &reading->moment);
    }
    target->walk.depth = 0;
    if (r == 0)
        target->along = options->work;
    return r;
}

static int read_python(struct reading *reading)
{
    struct target *target = reading->target;
    struct snapshot *snapshot = reading->snapshot;
    uint64_t start = monotonic_ns();

    if (!target->runtime.supported)
        return 0;
    int r = run_moment(reading);
    if (r == -EAGAIN && target->core) { /* it stays as it is */
        reading->moment.walk = NULL;
        snapshot->supported = false;
        snprintf(snapshot->why, sizeof snapshot->why,
                 "the interpreter's lists of threads make no "
                 "sense: the core file lacks parts of them");
        return 0;
    }
    if (r < 0)
        return r;
    struct walk *walk = reading->moment.walk;
    for (size_t i = 0; i < walk->n; i++)
        walk->stacks[i].tid = moment_tid(target, &reading->lwps, &walk->stacks[i]);
    for (size_t i = 0; i < walk->ngils; i++)
        snapshot->gil_held |= walk->gils[i].locked;
    snapshot->gil_off = walk->without_gil && !walk->ngils;
    snapshot->cut |= walk->cut;
    snapshot->cost.pause_ns += reading->moment.pause_ns;
    snapshot->cost.python_ns = monotonic_ns() - start;
    return 0;
}

/* Threads that have started since the list of threads was read. */
static bool has_new_threads(const struct reading *reading)
{
    const struct walk *walk = reading->moment.walk;

    for (size_t i = 0; walk && i < walk->n; i++)
        if (!walk->stacks[i].tid && walk->stacks[i].native_id > 0)
            return true;
    return false;
}

/* Reads all stacks once. `again`: another try would see more. */
static int read_stacks(struct reading *reading)
{
    struct target *target = reading->target;
    struct capture *capture = &reading->capture;
    static const struct walk nothing;
    bool native = reading->options->native;

    int r = target_lwps(target,
                        native                    ? LWP_STATES
                        : reading->options->still ? LWP_RUNS
                                                  : LWP_SYSCALLS,
                        &reading->lwps);
    if (r < 0)
        return r;
    reading->snapshot->cut = reading->lwps.cut;
    if (reading->options->tid && !lwp_find(&reading->lwps, reading->options->tid))
        return -ESRCH;
    if (native)
        r = capture_begin(capture, target, &reading->lwps, reading->options->tid);
    if (r == 0)
        r = read_python(reading);
    if (r == 0 && native)
        r = capture_unwind(capture, reading->moment.walk ? reading->moment.walk : &nothing);
    else if (r == 0 && reading->options->still && !target->core)
        lwp_list_see_moved(target->pid, &reading->lwps);
    reading->snapshot->cost.pause_ns += capture->pause_ns;
    if (r == 0 && (has_new_threads(reading) || (native && capture_too_short(capture))))
        reading->again = true;
    return r;
}

static void forget_stacks(struct reading *reading)
{
    if (reading->capture.stacks)
        capture_end(&reading->capture);
    lwp_list_deinit(&reading->lwps);
    reading->again = false;
}

static void read_names(struct reading *reading)
{
    struct target *target = reading->target;
    const struct walk *walk = reading->moment.walk;

    for (size_t i = 0; walk && i < walk->n; i++)
        if (!i || walk->stacks[i].interp != walk->stacks[i - 1].interp)
            names_refresh(target->names, &target->runtime.offsets, walk->stacks[i].interp,
                          NAMES_AGE_NS);
}

static int read_all(struct reading *reading)
{
    int r = 0;

    for (int tries = 0; tries < READ_TRIES && (!tries || reading->again) && r == 0; tries++) {
        forget_stacks(reading);
        r = read_stacks(reading);
    }
    if (r < 0)
        return r;
    read_names(reading);
    return add_threads(reading);
}

int snapshot_take(struct target *target, const struct snapshot_options *options,
                  struct snapshot **out)
{
    _cleanup_(cleanup_snapshot) struct snapshot *snapshot = calloc(1, sizeof *snapshot);
    struct reading reading = {.target = target, .options = options, .snapshot = snapshot};
    uint64_t start = monotonic_ns();

    if (!snapshot || strings_new(&snapshot->strings) < 0)
        return -ENOMEM;
    reading.frames = (struct frames){.strings = snapshot->strings, .native = target->native};
    snapshot->pid = target_number(target);
    snapshot->core = target->core;
    snapshot->supported = target->runtime.supported;
    snprintf(snapshot->why, sizeof snapshot->why, "%s", target->runtime.why);

    pthread_mutex_lock(&target->lock);
    target_learn_version(target);
    snapshot->version = target->runtime.version;
    int r = read_all(&reading);
    if (r == 0 && options->finish)
        r = options->finish(options->arg);
    forget_stacks(&reading);
    snapshot->cost.total_ns = monotonic_ns() - start;
    if (r == 0)
        target->cost = snapshot->cost;
    caches_note(target);
    pthread_mutex_unlock(&target->lock);
    text_deinit(&reading.frames.scratch);
    if (r == 0 && !target_alive(target))
        r = -ESRCH;
    if (r < 0)
        return r == -EAGAIN ? target_why_not(target) : r;
    array_sort(snapshot->threads, snapshot->nthreads, sizeof *snapshot->threads, by_order);
    *out = steal_pointer(snapshot);
    return 0;
}

const char *thread_state_name(enum thread_state state)
{
    static const char *const names[] = {
        [THREAD_RUNNING] = "running", [THREAD_IDLE] = "idle",     [THREAD_GIL_WAIT] = "gil-wait",
        [THREAD_STOPPED] = "stopped", [THREAD_TRACED] = "traced", [THREAD_DEAD] = "dead",
        [THREAD_FAULTED] = "faulted",
    };

    return names[state];
}

void thread_describe(const struct thread *thread, struct text *out)
{
    if (*thread->held) { /* it waits, but for moments in which it runs what it is asked to */
        text_printf(out, "held, %s", thread->held);
    } else {
        text_puts(out, thread->state == THREAD_FAULTED ? thread->wait
                                                       : thread_state_name(thread->state));
        if (thread->state == THREAD_IDLE)
            text_printf(out, ", %s", thread->waits ? thread->waits : thread->wait);
    }
    if (thread->holds_gil)
        text_puts(out, ", gil");
}
