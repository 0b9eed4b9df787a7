#include "agent/exceptions_trace.h"

#include "agent/agent.h"
#include "agent/fork.h"
#include "agent/thread.h"
#include "agent/recorder.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>

#define WORDS_MAX 32     /* of a thread state, in which the field is looked for */
#define THREADS_MAX 65536
#define SLOWS "slows Python code 3 to 6 times while it is on, before CPython 3.12"

/* Of CPython's cpython/pystate.h. */
typedef int trace_function(PyObject *object, PyFrameObject *frame, int what, PyObject *arg);
enum { TRACE_EXCEPTION = 1, TRACE_LINE, TRACE_RETURN };

static struct {
    int (*set)(PyThreadState *, trace_function *, PyObject *); /* _PyEval_SetTrace; an audit hook may refuse it */
    PyThreadState *(*first)(PyInterpreterState *);             /* PyInterpreterState_ThreadHead */
    PyThreadState *(*next)(PyThreadState *);                   /* PyThreadState_Next */
    size_t function;     /* which word of a thread state its trace function is; 0: not known */
} api;

/* A thread's exception that is under way, and the frame that it was last in; neither is held. */
static __thread struct {
    PyObject *exception;
    PyFrameObject *frame;
    bool handled;
} pending;

/* ---- thread states ---- */

static int trace(PyObject *object, PyFrameObject *frame, int what, PyObject *arg);

static trace_function *function_of(PyThreadState *state) { return ((trace_function **)state)[api.function]; }

static bool is_agents(const PyThreadState *state)
{
    for (size_t i = 0; i < PYTHON_THREADS_MAX; i++)
        if (agent.pythons[i].state == state)
            return true;
    return state == PyThreadState_Get() && python_thread_self();
}

/* Sets our own thread's for a moment to find where it is kept. */
static int find_word(void)
{
    PyThreadState *own = PyThreadState_Get();
    trace_function **words = (trace_function **)own;
    size_t found = 0;

    api.set(own, trace, NULL);
    for (size_t i = 1; i < WORDS_MAX; i++)
        if (words[i] == trace && !found)
            found = i;
    api.set(own, NULL, NULL);
    if (!found || words[found])
        return -EOPNOTSUPP;
    api.function = found;
    return 0;
}

static int bind(void)
{
    if (api.function)
        return 0;
    api.set = (int (*)(PyThreadState *, trace_function *, PyObject *))dlsym(RTLD_DEFAULT, "_PyEval_SetTrace");
    api.first = (PyThreadState * (*)(PyInterpreterState *)) dlsym(RTLD_DEFAULT, "PyInterpreterState_ThreadHead");
    api.next = (PyThreadState * (*)(PyThreadState *)) dlsym(RTLD_DEFAULT, "PyThreadState_Next");
    return api.set && api.first && api.next ? find_word() : -EOPNOTSUPP;
}

/* Traces the threads that are not; *others: how many have a trace function of their own. */
static void trace_all(struct exceptions *self, unsigned *others)
{
    PyThreadState *state = api.first(self->owner->state);

    self->newest = state;
    *others = 0;
    for (unsigned i = 0; state && i < THREADS_MAX; i++, state = api.next(state)) {
        if (is_agents(state))
            continue;
        if (!function_of(state))
            api.set(state, trace, NULL);
        else if (function_of(state) != trace)
            ++*others;
        PyErr_Clear(); /* an audit hook's */
    }
}

/* ---- the trace function ---- */

/* Nothing is recorded any more, or this is a child after fork: the thread runs as fast as ever. */
static int leave(void)
{
    api.set(PyThreadState_Get(), NULL, NULL);
    PyErr_Clear();
    return 0;
}

static void raised(struct exceptions *self, PyFrameObject *frame, PyObject *arg)
{
    PyObject *exception = PyTuple_GetItem(arg, 1), *traceback = PyTuple_GetItem(arg, 2); /* borrowed */
    PyObject *code = (PyObject *)PyFrame_GetCode(frame);

    if (exception && PyExceptionInstance_Check(exception)) {
        exceptions_raised(self, code, exception, traceback == Py_None ? NULL : traceback);
        pending.exception = exception;
        pending.frame = frame;
        pending.handled = false;
    }
    PyErr_Clear();
    Py_DecRef(code);
}

static void left(struct exceptions *self, PyFrameObject *frame)
{
    _cleanup_unref_ PyObject *code = (PyObject *)PyFrame_GetCode(frame);
    _cleanup_unref_ PyObject *back = (PyObject *)python.frame_back(frame);
    _cleanup_unref_ PyObject *callers = back ? (PyObject *)PyFrame_GetCode((PyFrameObject *)back) : NULL;

    PyErr_Clear();
    pending.frame = NULL;
    exceptions_left(self, code, callers, pending.exception);
}

/* From there it may go on, which is no event, and leave the frame. */
static void handled(struct exceptions *self, PyFrameObject *frame)
{
    PyObject *code = (PyObject *)PyFrame_GetCode(frame);

    exceptions_handled(self, code, pending.exception);
    pending.handled = true;
    Py_DecRef(code);
}

static void follow(struct exceptions *self, PyFrameObject *frame, int what, PyObject *arg)
{
    if (what == TRACE_EXCEPTION)
        raised(self, frame, arg);
    else if (what == TRACE_LINE)
        handled(self, frame);
    else if (what == TRACE_RETURN)
        left(self, frame);
}

/* In these versions whoever makes an object may have to run the cyclic collector, and that runs anything. */
static int trace(PyObject *object, PyFrameObject *frame, int what, PyObject *arg)
{
    unsigned others;
    bool here = pending.frame == frame;

    if (what == TRACE_LINE && (!here || pending.handled))
        return 0;
    struct exceptions *self = exceptions_here();
    if (!self || self->forks != fork_count())
        return leave();
    if (api.first(self->owner->state) != self->newest)
        trace_all(self, &others);
    if (what == TRACE_EXCEPTION || (here && (what == TRACE_LINE || (what == TRACE_RETURN && !arg)))) {
        bool collects = PyGC_Disable();
        follow(self, frame, what, arg);
        if (collects)
            PyGC_Enable();
    }
    return 0;
}

/* ---- on and off ---- */

int exceptions_trace(struct exceptions *self, char words[PROTO_WORDS_MAX])
{
    unsigned others;

    int r = bind();
    PyErr_Clear();
    if (r < 0)
        return r;
    self->forks = fork_count();
    trace_all(self, &others);
    if (others)
        snprintf(words, PROTO_WORDS_MAX,
                 SLOWS "; not recorded: %u threads that have a trace function of their own", others);
    else
        snprintf(words, PROTO_WORDS_MAX, SLOWS);
    return 0;
}

void exceptions_untrace(struct exceptions *self)
{
    PyThreadState *state = api.function ? api.first(self->owner->state) : NULL;
    bool refused = false;

    for (unsigned i = 0; state && i < THREADS_MAX; i++, state = api.next(state)) {
        if (function_of(state) == trace)
            api.set(state, NULL, NULL);
        refused = refused || function_of(state) == trace;
        PyErr_Clear();
    }
    if (refused) /* by an audit hook: the library stays, for good */
        Py_IncRef(self->owner->guest.capsule);
}
