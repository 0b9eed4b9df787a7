/* The interpreters of the process in which code was run, and our threads' way in and out of them.
 *
 * A thread state of ours must not outlive its interpreter, nor may one be made while it ends: so each has a
 * gate. Whoever goes in is counted; a function that the interpreter calls at its end (exit.c) closes the gate and
 * waits until nobody is inside. */
#pragma once

#include "agent/guest.h"
#include "agent/monitoring.h"
#include "agent/python.h"

#include "schema/rows.h"

#define INTERPRETERS_MAX 32 /* the first one is the main interpreter */

struct crash_reader;
struct places;
struct hits;

struct interpreter {
    bool used;
    int64_t id;
    PyInterpreterState *state;
    unsigned inside;     /* threads of ours with a thread state in it */
    bool exiting;        /* it is about to end, and joins its threads */
    bool closed;         /* it ends */
    struct guest guest;  /* under its GIL */
    struct monitoring monitoring; /* the same */
    struct monitoring stepping;   /* the same: step.h */
    struct crash_reader *crash;   /* crash.h; NULL: not of interest */
    struct monitoring watching;   /* the same: line_watch.c */
    struct places *places;        /* the same: places.h; NULL: no breakpoint is armed there */
    struct hits *hits;            /* the same: hit.h; NULL: nothing was hit yet */
    PyObject *recorded[RECORDED_TABLES]; /* recorder.h; under its GIL */
};

/* Only Python's thread, without the GIL: enters the interpreter and takes its GIL. -EBUSY: Python is
 * not initialized; -ESHUTDOWN: it ends; -ENOENT: no such interpreter; -ENOMEM: too many of them. */
int interpreter_enter(int64_t id, uint64_t hint, struct interpreter **out);
/* Gives the GIL up and, but for the main interpreter, leaves. */
void interpreter_leave(struct interpreter *interpreter);
/* Leaves the main interpreter for good, with or without having been in; takes the GIL for it. */
void interpreter_leave_main(void);
/* What could be given up. */
struct gave_up {
    bool everything;     /* nothing of ours is left that may refer to this library */
    bool nobody_inside;  /* each interpreter's GIL was held since: nobody is in a function of ours */
};
/* Gives up whatever is ours in all interpreters, and leaves; main's GIL is held. */
struct gave_up interpreter_give_up_all(void);
/* Visits each interpreter in which something of ours is, but for the main one, whose GIL is held and given up
 * meanwhile where the other's is its own. Whether all could be entered. */
bool interpreter_each_other(void (*visit)(struct interpreter *, void *arg), void *arg);
/* The same for each that there is, but for the main one: from then on something of ours is in it. */
bool interpreter_each_there(void (*visit)(struct interpreter *, void *arg), void *arg);
/* Whether nothing of ours is left in any interpreter that may refer to this library. */
bool interpreter_nothing_remains(void);

/* For a thread other than Python's: goes into an interpreter with a new thread state and takes
 * the GIL; hint: as of gil_take(). NULL: it ends, or there is no memory. */
PyThreadState *interpreter_visit(struct interpreter *interpreter, uint64_t hint);
void interpreter_visit_end(struct interpreter *interpreter, PyThreadState *state);

/* The entry of an id; NULL: none. With the lock. */
struct interpreter *interpreter_find(int64_t id);
