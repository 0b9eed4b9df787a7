/* What traps, and watchers of dicts, tell of: from the threads that write, inside a handler of a
 * signal, to the one that makes hits of it. It takes no lock and no memory; where it is full,
 * what would come is dropped. */
#pragma once

#include "agent/watch/trap.h"

/* Makes it, unless it is there. 0, -ENOMEM. */
int trap_queue_make(void);
void trap_queue_empty(void); /* in a child after fork */

/* For the handler. Room for one, NULL: there is none, and that it is filled. */
struct trap_hit *trap_queue_begin(void);
void trap_queue_end(struct trap_hit *hit);
/* A writer that has the GIL, and may have to be stopped, stays here for a moment, until it is
 * asked for the GIL: then it gives it up at the next chance, and isn't on its way for the
 * milliseconds of a switch. So seldom that it isn't slowed much, or, if that is likely to be
 * what is waited for, more often. */
void trap_queue_wait(bool likely);
/* What this thread, which has the GIL, is doing to something: object, borrowed, is what there is
 * from now on; NULL: unbound. number: the caller's. False: it is full. */
bool trap_push(uint32_t number, PyObject *object);

/* For the one thread that takes them. The oldest; its object is the caller's.
 * False: there is none. */
bool trap_take(struct trap_hit *out);
bool trap_pending(void);
/* Waits until there is one, or trap_wake(). */
void trap_wait(uint64_t ns);
void trap_wake(void);
/* Whether that thread is about to ask for the GIL. */
void trap_asking(bool asking);
