/* The interpreters of the process in which code was run, and our threads' way in and out of them.
 *
 * A thread state of ours must not outlive its interpreter, nor may one be made while it ends: so
 * each has a gate. Whoever goes in is counted; a function that the interpreter calls at its end
 * (joining.c) closes the gate and waits until nobody is inside. */
#pragma once

#include "agent/cpython/python.h"
#include "agent/interpreter/guest.h"

#define INTERPRETERS_MAX 32 /* the first one is the main interpreter */

struct interpreter {
    bool used;
    int64_t id;
    PyInterpreterState *state;
    unsigned inside;    /* threads of ours with a thread state in it */
    bool exiting;       /* it is about to end, and joins its threads */
    bool closed;        /* it ends */
    struct guest guest; /* under its GIL */
};

extern struct interpreter interpreters[INTERPRETERS_MAX]; /* `used` and `inside`: agent_lock */

static inline struct interpreter *interpreter_main(void) { return &interpreters[0]; }
static inline bool interpreter_is_main(const struct interpreter *interpreter)
{
    return interpreter == &interpreters[0];
}
/* The index by which other parts of the agent keep what they have of an interpreter: below
 * INTERPRETERS_MAX. */
static inline size_t interpreter_index(const struct interpreter *interpreter)
{
    return (size_t)(interpreter - interpreters);
}

/* Makes the guest of the main interpreter, for whoever starts the agent in a thread of the program
 * that holds that GIL, before anything of ours runs. NULL: it isn't the main interpreter, or the
 * guest could not be made; no exception is set. */
struct interpreter *interpreter_begin_main(void);
/* Only Python's thread, without the GIL: enters the interpreter and takes its GIL.
 * -EBUSY: Python is not initialized; -ESHUTDOWN: it ends; -ENOENT: no such
 * interpreter; -ENOMEM: too many of them. */
int interpreter_enter(int64_t id, uint64_t hint, struct interpreter **out);
/* Gives the GIL up and, but for the main interpreter, leaves. */
void interpreter_leave(struct interpreter *interpreter);
/* Leaves the main interpreter for good, with or without having been in; takes the GIL for it. */
void interpreter_leave_main(void);
/* Leaves the main interpreter for good, where its GIL is held: the last act of a detach. */
void interpreter_unsettle(void);
/* Visits each interpreter in which something of ours is, but for the main one, whose GIL is held
 * and given up meanwhile where the other's is its own. Whether all could be entered. */
bool interpreter_each_other(void (*visit)(struct interpreter *, void *arg), void *arg);
/* Visits every interpreter but the main one, and installs the guest where it is missing. The main
 * one's GIL is held, and given up meanwhile where the other's is its own. Whether all could be
 * entered. */
bool interpreter_each_there(void (*visit)(struct interpreter *, void *arg), void *arg);
/* Whether nothing of ours is left in any interpreter that may refer to this library. */
bool interpreter_nothing_remains(void);

/* Whether the process has one interpreter and no other; false as well where that
 * can't be known. With a GIL. */
bool interpreter_is_alone(void);

/* Goes into an interpreter with a new thread state and takes the GIL, in a thread other than
 * Python's; hint: as of gil_take(). NULL: the interpreter ends, or there is no memory. */
PyThreadState *interpreter_visit(struct interpreter *interpreter, uint64_t hint);
void interpreter_visit_end(struct interpreter *interpreter, PyThreadState *state);

/* In a child after fork: only the thread that forked may be inside. */
void interpreter_forget(void);

/* The entry of an id; NULL: none. With the lock. */
struct interpreter *interpreter_find(int64_t id);
