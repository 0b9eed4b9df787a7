/* snapshot_visit(): work on the frames of a moment. */
#include "fs/remote/moment/caches.h"
#include "fs/remote/moment/snapshot.h"

#include "agent/base/cleanup.h"
#include "fs/proc/lwp.h"
#include "fs/remote/moment/moment.h"
#include "fs/remote/moment/thread_stack.h"

#include <errno.h>

struct visit {
    struct target *target;
    pid_t tid;
    int (*work)(void *arg, struct view *view, const struct raw_stack *stack);
    void *arg;
    struct lwp_list lwps;
};

static int visit_thread(struct visit *visit, const struct walk *walk)
{
    _cleanup_(thread_stack_deinit) struct thread_stack python = {0};
    _cleanup_free_ const struct stack **stacks = calloc(walk->n + 1, sizeof *stacks);
    size_t n = 0;

    if (!stacks)
        return -ENOMEM;
    for (size_t i = 0; i < walk->n; i++)
        if (moment_tid(visit->target, &visit->lwps, &walk->stacks[i]) == visit->tid)
            stacks[n++] = &walk->stacks[i];
    int r = thread_stack_collect(stacks, n, &python);
    if (r < 0)
        return r;
    thread_stack_hide_agents(&python);
    struct raw_stack stack = {.tid = visit->tid, .frames = python.frames, .nframes = python.n};
    if (python.top) {
        stack.tstate = python.top->tstate;
        stack.interp = python.top->interp;
    }
    return visit->work(visit->arg, visit->target->view, &stack);
}

static int visit_in_moment(struct moment *moment, void *arg)
{
    struct visit *visit = arg;

    return visit_thread(visit, moment->walk);
}

static int visit_locked(struct visit *visit)
{
    struct target *target = visit->target;
    struct moment moment;

    if (!target->runtime.supported)
        return -EOPNOTSUPP;
    int r = target_lwps(target, LWP_STATES, &visit->lwps);
    if (r == 0 && !lwp_find(&visit->lwps, visit->tid))
        r = -ESRCH;
    if (r == 0)
        r = moment_run(target, visit_in_moment, visit, &moment);
    lwp_list_deinit(&visit->lwps);
    caches_note(target);
    return r == -EAGAIN ? target_why_not(target) : r;
}

int snapshot_visit(struct target *target, pid_t tid,
                   int (*visit)(void *arg, struct view *view, const struct raw_stack *stack),
                   void *arg)
{
    struct visit v = {.target = target, .tid = tid, .work = visit, .arg = arg};
    _guard_mutex_(&target->lock);

    return visit_locked(&v);
}
