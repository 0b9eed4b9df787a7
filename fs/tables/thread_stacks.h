/* The threads of the moment that is read, with their Python stacks. */
#pragma once

#include "fs/remote/moment/thread_stack.h"
#include "fs/tables/scene.h"

typedef int thread_stack_visit(void *arg, pid_t tid, const struct thread_stack *stack);

/* For a row source's `within`: visits each thread that the plan wants, once, in the order of the
 * walk, but none of the agent's own. Of deeper stacks than the plan's depth more may be there.
 * Returns what visit returned first other than 0; else 0; -ENOMEM. */
int thread_stacks_visit(const struct scene *scene, const struct moment *moment,
                        const struct lwp_list *lwps, thread_stack_visit *visit, void *arg);
