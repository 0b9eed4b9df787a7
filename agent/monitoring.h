/* The agent as a tool of sys.monitoring (CPython 3.12 on): one tool id for what it records and for breakpoints in an
 * interpreter, another one for steps, a third for values that are compared at lines, and a function of C for each kind of event.
 *
 * The id is one that no other tool has, taken with the first event and given back with the last one.
 *
 * What CPython calls is a Python function whose vectorcall is ours: the callee of least cost, and one
 * that works at the limit of recursion, where a built-in function would raise a RecursionError instead of the
 * program's own exception. It becomes an ordinary function without effect when it is given up, so whoever
 * still holds it then refers to nothing of this library. */
#pragma once

#include "agent/python.h"

#define MONITORING_EVENTS 8  /* kinds at once */
#define MONITORING_HEARERS 2 /* of one kind */

/* What is called, with the GIL and without an exception set; the arguments are those of the event
 * (Doc/library/sys.monitoring.rst). It must run no code of the program and not let go of the GIL, unless it was added with
 * MONITORING_RUNS_CODE. Returns monitoring_nothing(); where only it hears of this kind, monitoring_disable(), never of RAISE
 * and what else can't be local; or NULL with an exception set that the program is to see. */
typedef PyObject *monitoring_function(PyObject *function, PyObject *const *args, size_t count,
                                      PyObject *names);

struct monitoring_event {
    const char *name;    /* in sys.monitoring.events; NULL: free */
    long mask;
    bool local;          /* not of all code: monitoring_watch() */
    PyObject *function;
    monitoring_function *plain; /* its vectorcall before */
    monitoring_function *hearers[MONITORING_HEARERS]; /* in the order in which they are called; NULL behind the last */
};

/* One interpreter's, under its GIL. All zeros: nothing. */
struct monitoring {
    bool taken;
    bool last;           /* the caller's to set: its functions are called behind those of the other, if that can be had */
    int tool;            /* id, if taken */
    unsigned turn;       /* how often one was taken: what monitoring_watch() did before is lost */
    struct monitoring_event events[MONITORING_EVENTS];
};

/* Whether this interpreter has it. */
bool monitoring_available(void);
enum monitoring_flags {
    MONITORING_LOCAL = 1,     /* of the code that monitoring_watch() names, else of all code */
    MONITORING_RUNS_CODE = 2, /* it may run code of the program and let go of the GIL: called after those that don't. It holds a
                                 reference to `function` meanwhile */
};

/* Has `call` called at each event of a name ("RAISE"). *out, borrowed: the function that it is called as, which tells
 * interpreters apart. 0; -EBUSY: other tools have all ids, or too many want to hear of it; -EALREADY: `call` hears of it, or
 * it is local for one and not for the other; -EOPNOTSUPP, or -EIO with an exception set. */
int monitoring_add(struct monitoring *monitoring, const char *event, monitoring_function *call,
                   enum monitoring_flags flags, PyObject **out);
/* Undoes it. No exception is set afterwards. */
void monitoring_remove(struct monitoring *monitoring, const char *event, monitoring_function *call);
/* The bit of an event that was added; 0: it wasn't. */
long monitoring_mask(const struct monitoring *monitoring, const char *event);
/* Which local events of a code object are heard of: those of `mask`, locations for which DISABLE was returned included.
 * 0; -EIO with an exception set. */
int monitoring_watch(const struct monitoring *monitoring, PyObject *code, long mask);
/* sys.monitoring.DISABLE: this place is of no interest any more. New; NULL with an exception set. */
PyObject *monitoring_disable(void);

/* None, for a callback to return. */
static inline PyObject *monitoring_nothing(void)
{
    Py_IncRef(Py_None);
    return Py_None;
}
