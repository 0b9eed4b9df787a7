/* Interrupting running code: KeyboardInterrupt, raised in Python's thread. In a free-threaded
 * interpreter it is raised only in what was written, not in what that calls
 * (evaluate/striking.py). */
#pragma once

#include "agent/eval/requests.h"
#include "agent/interpreter/interpreter.h"

/* Has a thread of its own interrupt the request of that id once it gets the GIL, if the request
 * still runs then, and is not inside import's own functions: a lock of theirs could stay taken for
 * ever. Never waits. 0 or -errno of pthread_create(3). */
int interrupt_later(uint64_t id);
/* Waits until no such thread is there. Without the GIL, by the channel's thread only. */
void interrupt_join(void);

/* Interrupts the request that runs in an interpreter, whichever it is. With its GIL, which is given
 * up for a moment, a thousand times at most, while the request is at an import. */
void interrupt_all(struct interpreter *interpreter);
/* Forgets an interrupt that came too late to be raised. Python's thread, with the GIL. */
void interrupt_clear(void);
/* The same for an EVAL that has finished, also where no GIL keeps out who interrupts it: waits for
 * them, and undoes what they made. No exception is set before and after. */
void interrupt_settle(const struct guest *guest, const struct request *request);
/* After fork: there is none. */
void interrupt_forget(void);
