/* What fork() leaves of the agent in a child: nothing. */
#pragma once

/* Makes the state that of a process that has no agent, keeping what is Python's: in the child,
 * where the other threads are gone. */
void fork_forget(void);
