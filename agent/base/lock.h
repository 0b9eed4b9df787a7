/* The one lock of the agent, for what its threads share. It is held for moments only: never while
 * waiting for the GIL or the daemon, since fork() waits for it (agent/fork.c). Whose state it
 * guards says so. */
#pragma once

#include "agent/base/cleanup.h"

#include <pthread.h>

extern pthread_mutex_t agent_lock;
extern pthread_cond_t agent_changed; /* with the lock: anything that a thread may wait for */

/* Holds agent_lock for the rest of the scope. */
#define _guard_agent_ _guard_mutex_(&agent_lock)

/* Held by a thread of ours, without the GIL, while it is inside a function that takes a lock of
 * CPython's: a child that is forked meanwhile would have that lock for ever, as nobody is there to
 * give it back. The function may wait for the GIL besides (tracemalloc's allocator does), which a
 * thread that forks has: so that one waits for this lock, but not for ever. */
extern pthread_mutex_t fork_lock;

/* In a child after fork: nobody has them, nobody waits. */
void lock_forget(void);
