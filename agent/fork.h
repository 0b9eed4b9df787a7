/* What fork() leaves of the agent in a child: nothing. */
#pragma once

/* From now on libc calls the agent around fork(); until the library is unloaded. */
void fork_begin(void);
/* Makes the state that of a process that has no agent, keeping what is Python's: in the child,
 * where the other threads are gone. */
void fork_forget(void);
