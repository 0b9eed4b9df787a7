/* The source that works everywhere: it wakes up now and then and reads the stacks from outside, as
 * `backtrace` does, but stops nobody and asks nobody twice.
 *
 * How much processor time a thread had in between, the kernel says to the nanosecond (schedstat),
 * and that is what its stack weighs: shares are right however late the reading comes. It counts for
 * the stack in which the thread is seen to run: what a thread used that sleeps by the time it is
 * looked at is kept until it is seen running, a second at most. Time off the processor is what is
 * left of the time that has passed, and that is settled only where the thread is seen to sleep: of
 * one that waits for a processor the kernel says so no sooner than when it has got it.
 *
 * A thread that runs changes what is read. Its stack is read twice: the outer frames that both
 * readings agree on were there all the time, and where they are not the whole stack, `?? (torn)`
 * stands for the rest of it. */
#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/array.h"
#include "fs/proc/lwp.h"
#include "fs/proc/procfs.h"
#include "fs/proc/runs.h"
#include "fs/remote/moment/moment.h"
#include "fs/remote/moment/thread_stack.h"
#include "fs/sampler/reason.h"
#include "fs/sampler/sampler.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#define LIST_EVERY_NS 250000000u  /* threads are listed so often ... */
#define NAME_EVERY_NS 1000000000u /* ... and their names read, and the program looked at */
#define CARRY_NS 1000000000u      /* time that fits no stack is kept so long */
#define FLUSH_NS 500000000u       /* what a sleeping thread has slept is noted so often */
#define DESCRIPTORS_MAX 256       /* of threads, that stay open */
#define DAEMON_SHARE 4 /* looks take a quarter of a processor at most, those of all one */
#define DEPTH_MAX STORE_DEPTH_MAX

struct stack_ids {
    uint32_t *ids; /* outermost first */
    size_t n, alloc;
    bool torn;
};

/* A thread, and what is known of it. */
struct seen {
    pid_t tid;
    int fd; /* its schedstat; -1: opened each time */
    bool listed;
    struct runs runs;
    uint64_t at;        /* when they were read */
    uint64_t on, ready; /* ns that wait for a stack */
    uint64_t on_since;  /* since when; 0: nothing waits */
    uint64_t settled;   /* until when its time off the processor is noted */
    uint64_t used;      /* ns since then that it was on a processor, or ready */
    bool gil, known;    /* the stack is that of its last look */
    bool running;       /* it was seen to run or to be ready, before the stack was read */
    bool moved;         /* it has run since the last look */
    bool sleeps;        /* it hasn't since its stack and its reason were read, asleep */
    bool wanted;        /* its stack is to be read */
    struct stack_ids stack;
    uint32_t reason; /* a frame: why it sleeps */
};

struct timer {
    struct walk walks[2];
    struct view *view;
    struct seen *threads; /* ascending by tid */
    size_t n, alloc, descriptors;
    uint32_t shown[DEPTH_MAX + SAMPLER_TASKS_ABOVE];
    struct lwp_list lwps; /* where threads are numbered otherwise */
    uint64_t listed, named, period;
    unsigned random;
    _Atomic uint64_t daemon_ns, slowed;
};

/* How many there are. Like the processors that it is for, it belongs to the process. */
static _Atomic unsigned timers;

/* ---- threads ---- */

static void forget(struct timer *timer, struct seen *seen)
{
    if (seen->fd >= 0) {
        close(seen->fd);
        timer->descriptors--;
    }
    free(seen->stack.ids);
}

static int read_runs(pid_t pid, struct seen *seen, struct runs *out)
{
    char text[96];

    if (seen->fd < 0)
        return runs_read(pid, seen->tid, out);
    ssize_t n = pread(seen->fd, text, sizeof text - 1, 0);
    if (n <= 0)
        return -ESRCH;
    text[n] = 0;
    return runs_parse(text, out) ? 0 : -EOPNOTSUPP;
}

static int by_tid(const void *a, const void *b)
{
    const struct seen *x = a, *y = b;

    return (x->tid > y->tid) - (x->tid < y->tid);
}

static struct seen *find_thread(struct timer *timer, pid_t tid)
{
    const struct seen key = {.tid = tid};

    return timer->n ? bsearch(&key, timer->threads, timer->n, sizeof key, by_tid) : NULL;
}

struct listing {
    struct sampler *sampler;
    struct timer *timer;
    size_t known; /* those that were known are sorted */
    bool first;
    uint64_t now;
};

static int list_thread(void *arg, int tasks, pid_t tid)
{
    struct listing *listing = arg;
    struct timer *timer = listing->timer;
    size_t n = timer->n;
    char path[40];

    if (listing->sampler->options.tid && tid != listing->sampler->options.tid)
        return 0;
    timer->n = listing->known;
    struct seen *known = find_thread(timer, tid);
    timer->n = n;
    if (known) {
        known->listed = true;
        return 0;
    }
    if (n >= LWP_MAX)
        return 0;
    if (ARRAY_GROW(timer->threads, timer->alloc, n + 1) < 0)
        return -ENOMEM;
    struct seen seen = {
        .tid = tid, .fd = -1, .listed = true, .at = listing->now, .settled = listing->now};
    struct runs runs;
    if (timer->descriptors < DESCRIPTORS_MAX) {
        snprintf(path, sizeof path, "%d/schedstat", (int)tid);
        seen.fd = openat(tasks, path, O_RDONLY | O_CLOEXEC);
        if (seen.fd >= 0 && !descriptor_spare(seen.fd)) {
            close(seen.fd);
            seen.fd = -1;
        }
        timer->descriptors += seen.fd >= 0;
    }
    if (read_runs(listing->sampler->target->pid, &seen, &runs) < 0) {
        forget(timer, &seen);
        return 0;
    }
    /* What it has used before the profile began isn't part of it; of one that has begun since, all
     * is. */
    if (listing->first)
        seen.runs = runs;
    else
        seen.settled -= runs.ns + runs.queued_ns;
    timer->threads[timer->n++] = seen;
    return 0;
}

/* Brings the list of threads up to date. -ESRCH, -EACCES, -ENOMEM. */
static int list_threads(struct sampler *sampler, struct timer *timer, uint64_t now)
{
    struct listing listing = {sampler, timer, timer->n, !timer->listed, now};
    size_t kept = 0;

    for (size_t i = 0; i < timer->n; i++)
        timer->threads[i].listed = false;
    int error = proc_each_task(sampler->target->pid, list_thread, &listing);
    if (error)
        return error;
    for (size_t i = 0; i < timer->n; i++) {
        if (timer->threads[i].listed)
            timer->threads[kept++] = timer->threads[i];
        else
            forget(timer, &timer->threads[i]);
    }
    timer->n = kept;
    if (kept)
        array_sort(timer->threads, kept, sizeof *timer->threads, by_tid);
    timer->listed = now;
    if (sampler->target->foreign || sampler->target->runtime.version < 0x030b0000) {
        lwp_list_deinit(&timer->lwps);
        error = lwp_list_read(sampler->target->pid, LWP_STATES, &timer->lwps);
    }
    return error;
}

static pid_t stack_tid(struct sampler *sampler, struct timer *timer, const struct stack *stack)
{
    if (stack->native_id > 0 && !sampler->target->foreign)
        return stack->native_id;
    return moment_tid(sampler->target, &timer->lwps, stack);
}

/* The caller holds the target's lock. */
static void name_threads(struct sampler *sampler, struct timer *timer, const struct walk *walk)
{
    uint64_t interp = 0;

    for (size_t i = 0; i < walk->n; i++) {
        const struct stack *stack = &walk->stacks[i];
        pid_t tid = stack_tid(sampler, timer, stack);
        if (!tid || !find_thread(timer, tid))
            continue;
        if (stack->interp != interp)
            sampler_names_begin(sampler->names, stack->interp, NAME_EVERY_NS);
        interp = stack->interp;
        sampler_names_thread(sampler->names, interp, stack->thread_id, tid);
    }
}

/* ---- stacks ---- */

static int add_id(struct stack_ids *stack, uint32_t id)
{
    if (stack->n >= DEPTH_MAX)
        return 0;
    if (ARRAY_GROW(stack->ids, stack->alloc, stack->n + 1) < 0)
        return -ENOMEM;
    stack->ids[stack->n++] = id;
    return 0;
}

static bool same_place(const struct raw_frame *a, const struct raw_frame *b)
{
    return a->addr == b->addr && a->code == b->code;
}

/* How many outer frames of two readings of a stack are the same: all of them, if nothing but the
 * innermost one went on. */
static size_t agreed(const struct stack *a, const struct stack *b)
{
    size_t n = 0, most = a->n < b->n ? a->n : b->n;

    for (; n < most; n++) {
        const struct raw_frame *x = &a->frames[a->n - 1 - n], *y = &b->frames[b->n - 1 - n];
        if (!same_place(x, y))
            break;
        if (x->lasti != y->lasti)
            return n + 1;
    }
    return n;
}

static const struct stack *same_thread(const struct walk *walk, const struct stack *stack)
{
    const struct stack *other = walk_find(walk, stack->tstate);

    return other && other->thread_id == stack->thread_id ? other : NULL;
}

/* Puts the task that runs in the place of the event loop's frames. */
static int show_task(struct sampler *sampler, struct timer *timer, struct seen *seen,
                     const struct stack *stack)
{
    struct running_task running;
    size_t at;

    if (!sampler_tasks_find(sampler->tasks, timer->view, stack, &running, &at) ||
        stack->n - 1 - at >= seen->stack.n)
        return 0; /* or it is within what isn't certain */
    ssize_t n = sampler_tasks_show(sampler->tasks, &running, seen->stack.ids, seen->stack.n,
                                   stack->n - 1 - at, timer->shown);
    if (n < 0)
        return (int)n;
    seen->stack.n = 0;
    for (ssize_t i = 0; i < n; i++)
        if (add_id(&seen->stack, timer->shown[i]) < 0)
            return -ENOMEM;
    return 0;
}

/* Takes over the stack of a thread, as the last walk has it; before: another reading, if the thread
 * may have run. */
static int take_stack(struct sampler *sampler, struct timer *timer, struct seen *seen,
                      const struct stack *stack, const struct walk *before)
{
    const struct stack *other = before ? same_thread(before, stack) : stack;
    size_t n = stack->n;
    int error = 0;

    if (before)
        n = other ? agreed(stack, other) : 0;
    seen->stack.n = 0;
    seen->stack.torn = !other || n < stack->n || n < other->n || stack->end != STACK_COMPLETE;
    seen->known = true;
    for (size_t i = 0; !error && i < n; i++) {
        uint32_t id;
        error = sampler_names_raw(sampler->names, &stack->frames[stack->n - 1 - i], &id);
        if (!error)
            error = add_id(&seen->stack, id);
    }
    return error ? error : show_task(sampler, timer, seen, stack);
}

/* Several interpreters' frames of one thread are pieces of one stack. */
static int take_pieces(struct sampler *sampler, struct seen *seen, const struct walk *walk,
                       struct timer *timer)
{
    const struct stack *pieces[16];
    struct thread_stack whole;
    size_t n = 0;

    for (size_t i = 0; i < walk->n && n < ARRAY_SIZE(pieces); i++)
        if (stack_tid(sampler, timer, &walk->stacks[i]) == seen->tid)
            pieces[n++] = &walk->stacks[i];
    int error = thread_stack_collect(pieces, n, &whole);
    if (error)
        return error;
    seen->stack.n = 0;
    seen->stack.torn = seen->running || whole.torn;
    for (size_t i = whole.n; !error && i-- > 0;) {
        uint32_t id;
        error = sampler_names_raw(sampler->names, &whole.frames[i], &id);
        if (!error)
            error = add_id(&seen->stack, id);
    }
    thread_stack_deinit(&whole);
    return error;
}

static bool holds_gil(const struct walk *walk, const struct stack *stack)
{
    for (size_t i = 0; i < walk->ngils; i++)
        if (walk->gils[i].locked && walk->gils[i].holder == stack->tstate)
            return true;
    return false;
}

static int walk_once(struct sampler *sampler, struct timer *timer, struct walk *walk)
{
    struct target *target = sampler->target;

    int error = view_refresh(timer->view);
    if (!error)
        error = walk_run(walk, timer->view, &target->runtime, target->codes);
    if (!error)
        error = code_cache_load(target->codes, &target->memory, &target->runtime.offsets);
    return error;
}

/* Has the next copy of the view, which is made in one call, include which tasks run. */
static void touch_tasks(struct sampler *sampler, struct timer *timer, const struct walk *walk)
{
    struct running_task running;
    size_t at;

    for (size_t i = 0; i < walk->n; i++) {
        const struct seen *seen = find_thread(timer, stack_tid(sampler, timer, &walk->stacks[i]));
        if (seen && seen->running)
            (void)sampler_tasks_find(sampler->tasks, timer->view, &walk->stacks[i], &running, &at);
    }
}

/* Reads the stacks that are wanted. The caller holds the target's lock. */
static int read_stacks(struct sampler *sampler, struct timer *timer, uint64_t now)
{
    struct walk *walk = &timer->walks[0], *before = NULL;

    code_cache_trim(sampler->target->codes);
    int error = walk_once(sampler, timer, &timer->walks[0]);
    if (!error) {
        error = view_verify(timer->view);
        if (error == -EAGAIN) {
            before = &timer->walks[0];
            walk = &timer->walks[1];
            touch_tasks(sampler, timer, before);
            error = walk_once(sampler, timer, walk);
        }
    }
    for (size_t i = 0; !error && i < walk->n; i++) {
        const struct stack *stack = &walk->stacks[i];
        struct seen *seen = find_thread(timer, stack_tid(sampler, timer, stack));
        if (!seen || !seen->wanted)
            continue;
        bool first = !seen->listed; /* of its interpreters */
        seen->listed = false;
        if (first) {
            error = take_pieces(sampler, seen, walk, timer);
            continue;
        }
        seen->gil = holds_gil(walk, stack);
        error = take_stack(sampler, timer, seen, stack, seen->running ? before : NULL);
    }
    if (!error && (!timer->named || now - timer->named > NAME_EVERY_NS)) {
        name_threads(sampler, timer, walk);
        timer->named = now;
    }
    return error;
}

/* Why it sleeps, as a frame. */
static uint32_t read_reason(struct sampler *sampler, struct timer *timer, const struct seen *seen)
{
    pid_t pid = sampler->target->pid;
    uint64_t size = (uint64_t)sampler->target->runtime.offsets.gil_size, arg = 0;
    struct profile_frame frame = {.kind = PROFILE_WORD, .file = ""};
    char line[256], reason[SAMPLER_REASON_MAX];
    uint32_t id = STORE_OTHER;
    int number = -1;

    if (proc_read_task(pid, seen->tid, "syscall", line, sizeof line) <= 0 ||
        sscanf(line, "%d %lx", &number, &arg) < 1)
        number = -1;
    sampler_reason(number, reason);
    for (size_t i = 0; number == LWP_FUTEX && i < timer->walks[0].ngils; i++)
        if (arg - timer->walks[0].gils[i].addr < size)
            snprintf(reason, sizeof reason, "[gil]");
    frame.func = reason;
    store_intern(sampler->store, &frame, &id);
    return id;
}

/* ---- samples ---- */

static void note(struct sampler *sampler, const struct seen *seen, enum sample_kind kind,
                 uint64_t weight, const uint32_t *word, bool torn, uint64_t now)
{
    uint32_t with_word[DEPTH_MAX + 2] = {STORE_NO_STACK};
    struct sample sample = {
        .when = now,
        .tid = seen->tid,
        .kind = kind,
        .gil = kind == SAMPLE_CPU && seen->gil,
        .torn = torn,
        .weight = (int64_t)weight,
        .frames = seen->stack.ids,
        .n = seen->stack.n,
    };

    if (!weight)
        return;
    if (word) {
        if (sample.n)
            memcpy(with_word, sample.frames, sample.n * sizeof *with_word);
        else
            sample.n = 1;
        with_word[sample.n++] = *word;
        sample.frames = with_word;
    }
    store_add(sampler->store, &sample);
}

static void note_on(struct sampler *sampler, struct seen *seen, bool torn, uint64_t now)
{
    static const struct profile_frame preempted = {PROFILE_WORD, "[preempted]", "", 0, 0};
    uint32_t word = STORE_OTHER;

    if (sampler->options.modes & SAMPLER_ON_MODES)
        note(sampler, seen, SAMPLE_CPU, seen->on, NULL, torn, now);
    if (sampler->options.modes & SAMPLER_MODE(MODE_WALL)) {
        store_intern(sampler->store, &preempted, &word);
        note(sampler, seen, SAMPLE_PREEMPTED, seen->ready, &word, false, now);
    }
    seen->on = seen->ready = seen->on_since = 0;
}

/* Notes the time off the processor until then, where it was seen to sleep. What is too much by what
 * the kernel hadn't said yet is taken off the next. */
static void settle(struct sampler *sampler, struct seen *seen, uint64_t until)
{
    int64_t off = (int64_t)(until - seen->settled - seen->used);

    if (!(sampler->options.modes & SAMPLER_OFF_MODES) || off <= 0)
        return;
    note(sampler, seen, SAMPLE_OFF, (uint64_t)off, &seen->reason, false, until);
    seen->settled = until;
    seen->used = 0;
}

/* Takes down what the kernel says of a thread. False: it has gone. */
static bool account(struct sampler *sampler, struct seen *seen, uint64_t now)
{
    struct runs runs;

    if (read_runs(sampler->target->pid, seen, &runs) < 0)
        return false;
    uint64_t on = runs.ns - seen->runs.ns, ready = runs.queued_ns - seen->runs.queued_ns;
    seen->moved = on || ready || runs.n != seen->runs.n;
    if (seen->moved && seen->sleeps) { /* it was woken no later than this */
        uint64_t woken = now - on - ready;
        settle(sampler, seen, woken < seen->at ? woken : seen->at);
    }
    seen->sleeps &= !seen->moved;
    seen->runs = runs;
    seen->at = now;
    seen->on += on;
    seen->ready += ready;
    seen->used += on + ready;
    if (on + ready && !seen->on_since)
        seen->on_since = now;
    return true;
}

static bool may_run(const struct sampler *sampler, const struct seen *seen)
{
    return lwp_state(sampler->target->pid, seen->tid) == 'R';
}

/* Gives what has been accounted to the stack that was read. */
static void attribute(struct sampler *sampler, struct timer *timer, struct seen *seen, uint64_t now)
{
    if (seen->sleeps) {
        if (now - seen->settled > FLUSH_NS && !may_run(sampler, seen))
            settle(sampler, seen, now);
    } else if (seen->running) {
        if (may_run(sampler, seen))
            note_on(sampler, seen, seen->stack.torn, now);
    } else if (sampler->options.modes & SAMPLER_OFF_MODES) {
        seen->reason = read_reason(sampler, timer, seen);
        settle(sampler, seen, now);
        seen->sleeps = true;
    }
    if (seen->on_since && now - seen->on_since > CARRY_NS) {
        size_t n = seen->stack.n;
        seen->stack.n = seen->known && seen->running ? n : 0;
        note_on(sampler, seen, true, now);
        seen->stack.n = n;
    }
}

static int look(struct sampler *sampler, struct timer *timer, uint64_t now)
{
    bool reads = false, wants_off = sampler->options.modes & SAMPLER_OFF_MODES;

    if (!timer->listed || now - timer->listed > LIST_EVERY_NS) {
        int error = list_threads(sampler, timer, now);
        if (error)
            return error;
    }
    for (size_t i = 0; i < timer->n; i++) {
        struct seen *seen = &timer->threads[i];
        seen->listed = true;
        if (!account(sampler, seen, now))
            continue;
        seen->wanted = wants_off ? !seen->sleeps : seen->moved || !seen->known;
        seen->running = (seen->moved || wants_off) && seen->wanted && may_run(sampler, seen);
        reads |= seen->running || (wants_off && seen->wanted);
    }
    if (reads) {
        pthread_mutex_lock(&sampler->target->lock);
        int error = read_stacks(sampler, timer, now);
        pthread_mutex_unlock(&sampler->target->lock);
        if (error == -EAGAIN) /* its threads changed meanwhile: the next look has them all */
            return 0;
        if (error)
            return error;
    }
    for (size_t i = 0; i < timer->n; i++)
        if (timer->threads[i].at == now) /* else it has gone */
            attribute(sampler, timer, &timer->threads[i], now);
    return 0;
}

/* ---- the source ---- */

static uint64_t tick(struct sampler *sampler, uint64_t now)
{
    struct timer *timer = sampler->of;
    uint64_t cpu = thread_cpu_ns();

    if (!target_alive(sampler->target))
        return UINT64_MAX;
    int error = look(sampler, timer, now);
    sampler_tasks_look(sampler->tasks, now, sampler->options.modes & SAMPLER_OFF_MODES,
                       sampler->options.tid);
    atomic_fetch_add(&timer->daemon_ns, thread_cpu_ns() - cpu);
    if (error == -ESRCH || error == -EPERM || error == -EACCES)
        return UINT64_MAX;

    /* Never in step with the program: a period is half to one and a half of what it is on average.
     */
    uint64_t took = monotonic_ns() - now;
    uint64_t wait = timer->period / 2 + (uint64_t)rand_r(&timer->random) * timer->period / RAND_MAX;
    unsigned all = atomic_load(&timers) + atomic_load(&sampler->others);
    unsigned share = all > DAEMON_SHARE ? all : DAEMON_SHARE;
    if (wait < took * share) {
        wait = took * share;
        timer->slowed++;
    }
    return now + wait;
}

static void free_timer(struct timer *timer)
{
    for (size_t i = 0; i < timer->n; i++)
        forget(timer, &timer->threads[i]);
    free(timer->threads);
    walk_deinit(&timer->walks[0]);
    walk_deinit(&timer->walks[1]);
    view_free(timer->view);
    lwp_list_deinit(&timer->lwps);
    free(timer);
}

static int start(struct sampler *sampler, struct text *why)
{
    struct runs runs;

    if (!sampler->target->runtime.supported) {
        text_puts(why, "the stacks of this interpreter can't be read");
        return -EOPNOTSUPP;
    }
    if (runs_read(sampler->target->pid, sampler->target->pid, &runs) == -EACCES) {
        text_puts(why, "its threads' times can't be read");
        return -EACCES;
    }
    struct timer *timer = calloc(1, sizeof *timer);
    if (!timer)
        return -ENOMEM;
    timer->period = 1000000000u / sampler->options.hz;
    timer->random = (unsigned)monotonic_ns();
    if (view_new(&sampler->target->memory, &timer->view) < 0) {
        free_timer(timer);
        return -ENOMEM;
    }
    sampler->of = timer;
    atomic_fetch_add(&timers, 1);
    return 0;
}

static void stop(struct sampler *sampler)
{
    free_timer(sampler->of);
    atomic_fetch_sub(&timers, 1);
}

static void figures(struct sampler *sampler, struct sampler_figures *out)
{
    struct timer *timer = sampler->of;

    *out = (struct sampler_figures){
        .daemon_ns = atomic_load(&timer->daemon_ns),
        .missing = sampler->options.modes & ~sampler_timer.modes,
    };
    if (timer->slowed)
        snprintf(out->note, sizeof out->note,
                 "%lu looks came later: they take a quarter of a processor at most, those at all "
                 "processes one",
                 (unsigned long)timer->slowed);
}

const struct sampler_source sampler_timer = {
    .name = "timer",
    .modes = SAMPLER_ON_MODES | SAMPLER_OFF_MODES,
    .start = start,
    .stop = stop,
    .tick = tick,
    .figures = figures,
};
