/* The queue of trap hits. The threads that write to watched memory fill it, inside a handler of
 * SIGTRAP or a watcher of dicts; one thread of the agent takes hits out and reports them. Filling
 * it takes no lock and no memory. A hit that finds the queue full is dropped. */
#pragma once

#include "agent/watch/trap.h"

/* Allocates the queue, unless it is there. 0, -ENOMEM. */
int trap_queue_make(void);
/* Drops all hits, in a child after fork. */
void trap_queue_empty(void);

/* Takes a free hit for the handler to fill; NULL: the queue is full. */
struct trap_hit *trap_queue_begin(void);
/* Hands a filled hit over to the thread that takes them. */
void trap_queue_end(struct trap_hit *hit);
/* Holds a writer, which has the GIL, for a moment, until another thread asks for the GIL. Such a
 * writer gives the GIL up at its next chance, so that it can be stopped close to where it wrote,
 * and not milliseconds later. Most calls return at once, so that the program isn't slowed much;
 * more of them wait where `likely` says that this write is to stop its thread. */
void trap_queue_wait(bool likely);
/* Adds a hit for a change that this thread, which has the GIL, is making. number: told back in
 * trap_hit.change. object: the new value, borrowed; NULL: unbound. False: the queue is full. */
bool trap_push(uint32_t number, PyObject *object);

/* The rest is for the one thread that takes hits. */

/* Takes the oldest hit, whose object is the caller's then. False: there is none. */
bool trap_take(struct trap_hit *out);
/* Whether there is a hit to take. */
bool trap_pending(void);
/* Waits for a hit or for trap_wake(), `ns` nanoseconds at most. */
void trap_wait(uint64_t ns);
void trap_wake(void);
/* Tells writers whether that thread is about to ask for the GIL. */
void trap_asking(bool asking);
