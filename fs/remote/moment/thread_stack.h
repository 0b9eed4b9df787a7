/* The Python stack of one kernel thread.
 *
 * A thread has one thread state for each interpreter that it runs code of. Their frames are
 * pieces of one C stack, and here one stack: in the order in which the pieces lie on it. */
#pragma once

#include "fs/remote/frames/frames.h"
#include "fs/remote/moment/merge.h"

struct thread_stack {
    const struct stack *top;  /* the thread state whose frames are innermost; NULL: no Python */
    struct raw_frame *frames; /* innermost first */
    size_t n;
    struct merge_group *groups; /* calls of the evaluation loop, innermost first */
    size_t ngroups;
    bool torn; /* inner frames are missing */
    enum stack_end end;
};

/* Collects the stacks of one thread. -ENOMEM. The caller owns *out (thread_stack_deinit). */
int thread_stack_collect(const struct stack *const *stacks, size_t n, struct thread_stack *out);
/* Leaves out what the agent runs on top of a stack for an eval, a watch or a condition, and frames
 * of its own there, so that frame 0 is the program's innermost one. A stack that has nothing else,
 * as that of a thread of the agent's, stays as it is. The frames' code is to be loaded. */
void thread_stack_hide_agents(struct thread_stack *stack);
void thread_stack_deinit(struct thread_stack *stack);
