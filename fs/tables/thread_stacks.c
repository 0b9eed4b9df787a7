#include "fs/tables/thread_stacks.h"

#include "agent/base/cleanup.h"
#include "fs/proc/lwp.h"
#include "fs/remote/moment/moment.h"

#include <errno.h>

int thread_stacks_visit(const struct scene *scene, const struct moment *moment,
                        const struct lwp_list *lwps, thread_stack_visit *visit, void *arg)
{
    const struct walk *walk = moment->walk;
    size_t n = walk->n;
    _cleanup_free_ const struct stack **stacks = calloc(n + 1, sizeof *stacks);
    _cleanup_free_ pid_t *tids = calloc(n + 1, sizeof *tids);
    int e = 0;

    if (!stacks || !tids)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        tids[i] = moment_tid(scene->target, lwps, &walk->stacks[i]);
    for (size_t i = 0; i < n && e == 0; i++) {
        _cleanup_(thread_stack_deinit) struct thread_stack stack = {0};
        const pid_t tid = tids[i];
        size_t same = 0;
        if (!tid || (scene->plan.tid && tid != scene->plan.tid) || held_is_own(&scene->agent, tid))
            continue;
        for (size_t k = i; k < n; k++)
            if (tids[k] == tid) {
                stacks[same++] = &walk->stacks[k];
                tids[k] = 0;
            }
        e = thread_stack_collect(stacks, same, &stack);
        if (e < 0)
            return e;
        thread_stack_hide_agents(&stack);
        e = visit(arg, tid, &stack);
    }
    return e;
}
