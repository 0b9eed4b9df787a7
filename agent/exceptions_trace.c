#include "agent/exceptions_trace.h"

#include "agent/trace.h"

/* A thread's exception that is under way, and the frame that it was last in; neither is held. */
static __thread struct {
    PyObject *exception;
    PyFrameObject *frame;
    bool handled;
} pending;

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

static void follow(struct exceptions *self, PyFrameObject *frame, enum trace_what what, PyObject *arg)
{
    if (what == TRACE_EXCEPTION)
        raised(self, frame, arg);
    else if (what == TRACE_LINE)
        handled(self, frame);
    else if (what == TRACE_RETURN)
        left(self, frame);
}

/* In these versions whoever makes an object may have to run the cyclic collector, and that runs anything. */
static bool hear(struct interpreter *interpreter, PyFrameObject *frame, enum trace_what what, PyObject *arg)
{
    bool here = pending.frame == frame;

    if (what == TRACE_LINE && (!here || pending.handled))
        return true;
    if (what == TRACE_EXCEPTION || (here && (what == TRACE_LINE || (what == TRACE_RETURN && !arg)))) {
        struct exceptions *self = exceptions_here();
        bool collects = PyGC_Disable();
        if (self)
            follow(self, frame, what, arg);
        if (collects)
            PyGC_Enable();
    }
    return true;
}

int exceptions_trace(struct interpreter *interpreter, char words[PROTO_WORDS_MAX])
{
    return trace_add(interpreter, TRACE_EXCEPTIONS, hear, NULL, TRACE_RAISES, words);
}

void exceptions_untrace(struct interpreter *interpreter) { trace_remove(interpreter, TRACE_EXCEPTIONS); }
