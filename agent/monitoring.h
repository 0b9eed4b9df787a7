/* The agent as a tool of sys.monitoring (CPython 3.12 on): one tool id for all that it wants to hear of in an
 * interpreter, and a function of C for each kind of event.
 *
 * The id is one that no other tool has, taken with the first event and given back with the last one.
 *
 * What CPython calls is a Python function whose vectorcall is ours: the callee of least cost, and one
 * that works at the limit of recursion, where a built-in function would raise a RecursionError instead of the
 * program's own exception. It becomes an ordinary function without effect when it is given up, so whoever
 * still holds it then refers to nothing of this library. */
#pragma once

#include "agent/python.h"

#define MONITORING_EVENTS 8 /* kinds at once */

/* What is called, with the GIL and without an exception set; the arguments are those of the event
 * (Doc/library/sys.monitoring.rst). It must leave no exception set, run no code of the program, and not let go
 * of the GIL; returns monitoring_nothing(). */
typedef PyObject *monitoring_function(PyObject *function, PyObject *const *args, size_t count,
                                      PyObject *names);

struct monitoring_event {
    const char *name;    /* in sys.monitoring.events; NULL: free */
    long mask;
    PyObject *function;
    monitoring_function *plain; /* its vectorcall before */
};

/* One interpreter's, under its GIL. All zeros: nothing. */
struct monitoring {
    bool taken;
    int tool;            /* id, if taken */
    struct monitoring_event events[MONITORING_EVENTS];
};

/* Whether this interpreter has it. */
bool monitoring_available(void);
/* Has `call` called at each event of a name ("RAISE"), of all code. *out, borrowed: the function that it
 * is called as, which tells interpreters apart. 0; -EBUSY: other tools have all ids; -EALREADY: somebody hears of
 * this event; -EOPNOTSUPP, or -EIO with an exception set. */
int monitoring_add(struct monitoring *monitoring, const char *event, monitoring_function *call,
                   PyObject **out);
/* Undoes it. No exception is set afterwards. */
void monitoring_remove(struct monitoring *monitoring, const char *event);

/* None, for a callback to return. */
static inline PyObject *monitoring_nothing(void)
{
    Py_IncRef(Py_None);
    return Py_None;
}
