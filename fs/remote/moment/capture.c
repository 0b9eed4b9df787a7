#include "fs/remote/moment/capture.h"

#include "agent/base/cleanup.h"
#include "fs/remote/memory/core.h"
#include "fs/trace/tracer.h"

#include <errno.h>
#include <string.h>

static bool is_wanted(const struct capture *capture, size_t i)
{
    return !capture->only || capture->lwps->items[i].tid == capture->only;
}

/* What the thread did when its stack was copied: the two are shown together. */
static void note_state(struct lwp *lwp, const struct native_stack *stack, bool running)
{
    lwp->syscall = (int)stack->syscall;
    memcpy(lwp->args, stack->args, sizeof lwp->args);
    if (running)
        lwp->state = 'R';
    else if (lwp->state == 'R')
        lwp->state = 'S';
}

/* A core file has the registers of all threads. */
static int capture_core(struct capture *capture)
{
    const struct target *target = capture->target;
    const struct lwp_list *lwps = capture->lwps;

    for (size_t i = 0; i < lwps->n; i++) {
        struct native_stack *stack = &capture->stacks[i];
        const struct core_thread *thread = core_thread(target->core, stack->tid);
        if (!thread || !is_wanted(capture, i))
            continue;
        native_regs_set(&stack->regs, &thread->regs);
        stack->tls = registers_tls(&thread->regs);
        stack->stopped = true;
        int r = native_capture(target->native, &target->maps, stack, 1);
        if (r < 0)
            return r;
    }
    return 0;
}

int capture_begin(struct capture *capture, struct target *target, struct lwp_list *lwps, pid_t only)
{
    *capture = (struct capture){.target = target, .lwps = lwps, .only = only};
    capture->stacks = calloc(lwps->n, sizeof *capture->stacks);
    if (!capture->stacks)
        return -ENOMEM;
    for (size_t i = 0; i < lwps->n; i++) {
        capture->stacks[i].tid = lwps->items[i].tid;
        capture->stacks[i].end = NATIVE_RUNNING;
        capture->stacks[i].syscall = -1;
    }
    native_begin(target->native);
    if (target->core)
        return capture_core(capture);
    /* each run of sleeping threads in one call */
    for (size_t i = 0, from; i < lwps->n; i++) {
        for (from = i; i < lwps->n && lwps->items[i].state != 'R' && is_wanted(capture, i); i++)
            ;
        if (i == from)
            continue;
        int r = native_capture(target->native, &target->maps, capture->stacks + from, i - from);
        if (r < 0)
            return r;
        for (size_t k = from; k < i; k++)
            note_state(&lwps->items[k], &capture->stacks[k], false);
    }
    return 0;
}

static struct native_stack *stack_of(struct capture *capture, pid_t tid)
{
    for (size_t i = 0; i < capture->lwps->n; i++)
        if (capture->stacks[i].tid == tid)
            return &capture->stacks[i];
    return NULL;
}

static int capture_stopped(struct capture *capture, struct tracer *tracer,
                           struct native_stack *stack)
{
    struct registers regs;

    int r = tracer_registers(tracer, stack->tid, &regs);
    if (r < 0)
        return r;
    native_regs_set(&stack->regs, &regs);
    stack->stopped = true;
    stack->syscall = -1; /* it runs, whatever it did before */
    return native_capture(capture->target->native, NULL, stack, 1);
}

int capture_holders(struct capture *capture, const struct moment *moment)
{
    for (size_t i = 0; moment->tracer && i < moment->nholders; i++) {
        struct native_stack *stack = stack_of(capture, moment->holders[i]);
        if (!stack || (capture->only && stack->tid != capture->only))
            continue;
        if (moment->late && tracer_stop(moment->tracer, stack->tid) < 0)
            continue;
        if (capture_stopped(capture, moment->tracer, stack) == 0)
            note_state(&capture->lwps->items[stack - capture->stacks], stack, true);
    }
    return 0;
}

/* ---- one thread by itself ---- */

struct single {
    struct capture *capture;
    struct lwp *lwp;
    struct native_stack *stack;
    const struct stack *python; /* NULL: it runs no Python */
};

/* Whether the thread, which stands still now, is still where the walk saw it in Python. */
static bool still_there(const struct single *single)
{
    const struct target *target = single->capture->target;
    const struct stack *s = single->python;
    uint64_t now;

    return !s || (!memory_read(&target->memory,
                               s->tstate + (uint64_t)walk_entry_offset(&target->runtime.offsets),
                               &now, sizeof now) &&
                  now == s->entry);
}

static int stop_and_capture(struct tracer *tracer, void *arg)
{
    struct single *single = arg;
    struct target *target = single->capture->target;
    uint64_t ns;

    int r = tracer_stop(tracer, single->stack->tid);
    if (r == 0)
        r = still_there(single) ? capture_stopped(single->capture, tracer, single->stack) : -EAGAIN;
    if (tracer_resume(tracer, &ns) < 0 && r == 0)
        r = -EAGAIN;
    pacing_paused(&target->pacing, target->pid, ns);
    single->capture->pause_ns += ns;
    return r;
}

static int unwind(struct capture *capture, struct native_stack *stacks, size_t n)
{
    struct target *target = capture->target;

    return native_unwind(target->native, &target->maps, target->runtime.image_base, stacks, n);
}

static bool is_missing(const struct native_stack *stack)
{
    return stack->end == NATIVE_RUNNING || stack->end == NATIVE_TORN;
}

/* Captures a thread once more, as it is now: asleep or running. */
static int capture_single(struct single *single)
{
    struct target *target = single->capture->target;
    struct native_stack *stack = single->stack;
    bool running = lwp_state(target->pid, stack->tid) == 'R';

    if (running)
        pacing_wait(&target->pacing, target->pid);

    native_stacks_deinit(stack, 1);
    *stack = (struct native_stack){.tid = stack->tid, .end = NATIVE_RUNNING, .syscall = -1};
    native_begin(target->native);
    int r = running ? tracer_read(&target->tracing, stop_and_capture, single)
                    : native_capture(target->native, &target->maps, stack, 1);
    if (r == 0 && !running && !still_there(single))
        r = -EAGAIN;
    if (r == 0)
        r = unwind(single->capture, stack, 1);
    if (r == 0) {
        if (!is_missing(stack))
            note_state(single->lwp, stack, running);
        return 0;
    }
    stack->end = r == -EAGAIN ? NATIVE_TORN : NATIVE_RUNNING;
    return r == -ENOMEM ? r : 0; /* what it is without native frames is said there */
}

/* Threads that ran when the others were captured, or have run since. */
static int capture_missing(struct capture *capture, const struct walk *walk)
{
    size_t left = CAPTURE_SINGLES_MAX;
    int r = 0;

    for (size_t i = 0; i < capture->lwps->n; i++)
        capture->lwps->items[i].moved = !capture->stacks[i].frames;
    for (size_t i = 0; i < capture->lwps->n && left && r == 0; i++) {
        struct single single = {capture, &capture->lwps->items[i], &capture->stacks[i], NULL};
        if (!is_wanted(capture, i) || !is_missing(single.stack))
            continue;
        left--;
        for (size_t k = 0; k < walk->n && !single.python; k++)
            if (walk->stacks[k].tid == single.stack->tid)
                single.python = &walk->stacks[k];
        for (int tries = 0; tries < CAPTURE_TRIES && is_missing(single.stack) && r == 0; tries++)
            r = capture_single(&single);
    }
    return r;
}

int capture_unwind(struct capture *capture, const struct walk *walk)
{
    int r = target_refresh_maps(capture->target);
    if (r == 0)
        r = unwind(capture, capture->stacks, capture->lwps->n);
    return r == 0 ? capture_missing(capture, walk) : r;
}

bool capture_too_short(const struct capture *capture)
{
    for (size_t i = 0; i < capture->lwps->n; i++)
        if (capture->stacks[i].stopped && capture->stacks[i].end == NATIVE_SHORT)
            return true;
    return false;
}

void capture_end(struct capture *capture)
{
    if (capture->stacks)
        native_stacks_deinit(capture->stacks, capture->lwps->n);
    free(capture->stacks);
    capture->stacks = NULL;
}
