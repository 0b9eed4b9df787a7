/* The thread that runs Python code: "probe-python". Where code can't be made to end, another one
 * takes over, and the first ends with that code: a wait for something that never comes would
 * otherwise be the last thing that this process evaluates. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Makes it, unless one is there that can be expected to serve. Channel's thread
 * only. 0 or -errno. */
int python_thread_need(void);
/* Has it make `import probing` work, without waiting for that. Channel's thread only. */
void python_thread_welcome(void);
/* Before a detach: waits a moment until that is done. A program that keeps its GIL keeps it from
 * that: then another thread is to serve, which has no need of the GIL. Channel's thread only. */
void python_thread_give_up_welcome(void);
/* Whether code runs that was told to end and didn't. */
bool python_thread_stuck(void);
/* Waits for its end; channel's thread only. */
void python_thread_join(void);
/* Whether one was retired: nobody waits for its last step inside the library. */
bool python_thread_was_replaced(void);
/* In a child after fork: there is none. */
void python_thread_forget(void);
/* Bytes of its stack that are in memory; 0: there is no such thread. */
uint64_t python_thread_memory(void);
