/* Threads that sleep in a system call of the interpreter's own, and waking them.
 *
 * A script (PEP 768) runs when its thread comes back to the interpreter, or calls
 * PyErr_CheckSignals(). CPython does that after each EINTR, then goes on with what is left of the
 * time (PEP 475). Code of other libraries may take EINTR for a failure, hence the check who has
 * made the call. */
#pragma once

#include "fs/remote/moment/snapshot.h"

/* The system call that a thread sleeps in. */
struct sleep_call {
    uint64_t pc;      /* behind the system call's instruction, in a library */
    uint64_t caller;  /* the return address into the interpreter; 0: not a place to wake from */
    const char *name; /* of the system call; not owned */
};

/* Whether a thread of a snapshot with native frames sleeps so. Takes target->lock. */
void sleep_call_find(struct target *target, const struct thread *thread, struct sleep_call *out);

/* Makes the system call of a thread, which the calling thread has stopped by ptrace, return
 * EINTR; does nothing if it isn't at that place any more. */
void sleep_call_wake(const struct memory *memory, pid_t tid, const struct sleep_call *place);
