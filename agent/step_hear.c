/* How steps hear what their threads do: from sys.monitoring, or, before CPython 3.12, from the trace function. */
#include "agent/agent.h"
#include "agent/steps.h"
#include "agent/trace.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define CO_GENERATORS 0x2a0 /* CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR of code.h */
enum { YIELD_FROM = 72, YIELD_VALUE = 86 }; /* opcode.h of 3.10 and 3.11 */

/* That of the calling thread, if steps are under way there. */
static struct interpreter *find_here(void)
{
    const PyInterpreterState *here = PyInterpreterState_Get();

    for (size_t i = 0; i < INTERPRETERS_MAX; i++) {
        struct interpreter *interpreter = &agent.interpreters[i];
        if (interpreter->used && interpreter->state == here && steps_of(interpreter)->hears == interpreter)
            return interpreter;
    }
    return NULL;
}

/* ---- sys.monitoring ---- */

/* What a callback returns. */
static PyObject *result(PyObject *function, bool fine)
{
    Py_DecRef(function);
    return fine ? monitoring_nothing() : NULL;
}

static PyObject *on_line(PyObject *function, PyObject *const *args, size_t count, PyObject *names)
{
    struct interpreter *interpreter = find_here();

    Py_IncRef(function);
    return result(function, !interpreter || steps_line(interpreter, NULL, args[0], (int)PyLong_AsLong(args[1])));
}

static PyObject *entered(PyObject *function, PyObject *code, bool is_start)
{
    struct interpreter *interpreter = find_here();

    Py_IncRef(function);
    return result(function, !interpreter || steps_entered(interpreter, NULL, code, is_start));
}

static PyObject *on_start(PyObject *function, PyObject *const *args, size_t count, PyObject *names)
{
    return entered(function, args[0], true);
}

static PyObject *on_resume(PyObject *function, PyObject *const *args, size_t count, PyObject *names)
{
    return entered(function, args[0], false);
}

static PyObject *left(PyObject *function, PyObject *const *args, enum left how)
{
    struct interpreter *interpreter = find_here();

    Py_IncRef(function);
    return result(function, !interpreter || steps_left(interpreter, NULL, args[0], how, args[2]));
}

static PyObject *on_return(PyObject *function, PyObject *const *args, size_t count, PyObject *names)
{
    return left(function, args, LEFT_RETURNED);
}

static PyObject *on_yield(PyObject *function, PyObject *const *args, size_t count, PyObject *names)
{
    return left(function, args, LEFT_YIELDED);
}

static PyObject *on_unwind(PyObject *function, PyObject *const *args, size_t count, PyObject *names)
{
    return left(function, args, LEFT_UNWOUND);
}

/* Those of calls come first. */
static const struct {
    const char *name;
    monitoring_function *call;
    enum monitoring_flags flags;
} events[] = {
    {"PY_START", on_start, MONITORING_RUNS_CODE},
    {"PY_RESUME", on_resume, MONITORING_RUNS_CODE},
    {"PY_THROW", on_resume, MONITORING_RUNS_CODE},
#define EVENTS_OF_CALLS 3
    {"LINE", on_line, MONITORING_LOCAL | MONITORING_RUNS_CODE},
    {"PY_RETURN", on_return, MONITORING_LOCAL | MONITORING_RUNS_CODE},
    {"PY_YIELD", on_yield, MONITORING_LOCAL | MONITORING_RUNS_CODE},
    {"PY_UNWIND", on_unwind, MONITORING_RUNS_CODE},
};

static void watch(struct interpreter *interpreter, PyObject *code, bool wanted)
{
    long mask = 0;

    for (size_t i = 0; i < ARRAY_SIZE(events) && wanted; i++)
        mask |= events[i].flags & MONITORING_LOCAL ? monitoring_mask(&interpreter->stepping, events[i].name) : 0;
    monitoring_watch(&interpreter->stepping, code, mask);
    PyErr_Clear();
}

static int monitor(struct interpreter *interpreter, bool any, bool of_calls)
{
    int r = 0;

    interpreter->stepping.last = true;
    for (size_t i = ARRAY_SIZE(events); i-- > 0 && r == 0;) {
        PyObject *function;
        if (!any || (i < EVENTS_OF_CALLS && !of_calls))
            monitoring_remove(&interpreter->stepping, events[i].name, events[i].call);
        else
            r = monitoring_add(&interpreter->stepping, events[i].name, events[i].call, events[i].flags, &function);
        r = r == -EALREADY ? 0 : r;
    }
    PyErr_Clear();
    return r;
}

/* ---- the trace function ---- */

static bool flag_of(PyObject *code, const char *name, long mask)
{
    _cleanup_unref_ PyObject *flags = PyObject_GetAttrString(code, name);
    bool set = flags && PyLong_AsLong(flags) & mask;
    PyErr_Clear();
    return set;
}

/* Whether a frame that says that it returns only gives up control. */
static bool yields(PyFrameObject *frame, PyObject *code)
{
    if (!flag_of(code, "co_flags", CO_GENERATORS))
        return false;
    _cleanup_unref_ PyObject *lasti = PyObject_GetAttrString((PyObject *)frame, "f_lasti");
    _cleanup_unref_ PyObject *bytes = lasti ? PyObject_GetAttrString(code, "co_code") : NULL;
    long at = bytes ? PyLong_AsLong(lasti) : -1;
    bool yields = at >= 0 && at < PyBytes_Size(bytes) &&
                  (PyBytes_AsString(bytes)[at] == YIELD_VALUE || PyBytes_AsString(bytes)[at] == YIELD_FROM);
    PyErr_Clear();
    return yields;
}

static bool traced(struct interpreter *interpreter, PyFrameObject *frame, enum trace_what what, PyObject *arg)
{
    _cleanup_unref_ PyObject *code = (PyObject *)PyFrame_GetCode(frame);

    switch (what) {
    case TRACE_CALL:
        return steps_entered(interpreter, frame, code, true);
    case TRACE_LINE:
        return steps_line(interpreter, frame, code, PyFrame_GetLineNumber(frame));
    case TRACE_RETURN:
        return steps_left(interpreter, frame, code,
                          !arg ? LEFT_UNWOUND : yields(frame, code) ? LEFT_YIELDED : LEFT_RETURNED, arg);
    default:
        return true;
    }
}

/* Where no step wants all code. */
static enum trace_interest wants(struct interpreter *interpreter, PyThreadState *state, PyObject *code, bool entered)
{
    const struct steps *self = steps_of(interpreter);
    enum trace_interest interest = TRACE_NEVER;

    for (size_t i = 0; i < self->count; i++)
        if (self->all[i].code == code && self->all[i].thread == PyThreadState_GetID(state))
            return TRACE_NOW;
        else if (self->all[i].code == code)
            interest = TRACE_NOT_NOW;
    return interest;
}

static int trace(struct interpreter *interpreter, bool any, bool of_calls, char words[PROTO_WORDS_MAX])
{
    if (any)
        return trace_add(interpreter, TRACE_STEPS, traced, wants, of_calls ? TRACE_ALL : TRACE_WANTED, words);
    trace_remove(interpreter, TRACE_STEPS);
    return 0;
}

/* ---- both ---- */

int steps_hear(struct interpreter *interpreter, char words[PROTO_WORDS_MAX])
{
    struct steps *self = steps_of(interpreter);
    bool of_calls = false;
    int r;

    words[0] = '\0';
    for (size_t i = 0; i < self->count; i++)
        of_calls = of_calls || self->all[i].verb == THREAD_STEP;
    if (python.version < 0x030c)
        r = trace(interpreter, self->count > 0, of_calls, words);
    else
        r = monitor(interpreter, self->count > 0, of_calls);
    bool anew = !self->hears || self->tool != interpreter->stepping.turn;
    self->hears = self->count ? interpreter : NULL;
    self->tool = interpreter->stepping.turn;
    if (r < 0)
        snprintf(words, PROTO_WORDS_MAX, r == -EBUSY
                     ? "other tools have all ids of sys.monitoring (see sys.monitoring.get_tool)"
                     : "this interpreter lacks what it takes to stop a thread at a line, or forbids it");
    for (size_t i = 0; i < self->count && r == 0 && anew && python.version >= 0x030c; i++)
        for (size_t k = 0; k < 2; k++)
            if (k ? self->all[i].caller : self->all[i].code)
                watch(interpreter, k ? self->all[i].caller : self->all[i].code, true);
    return r;
}

void steps_watch(struct interpreter *interpreter, PyObject *code)
{
    const struct steps *self = steps_of(interpreter);
    size_t uses = 0;

    if (!self->hears)
        return; /* steps_hear() follows */
    for (size_t i = 0; i < self->count; i++)
        uses += (self->all[i].code == code) + (self->all[i].caller == code);
    if (python.version < 0x030c)
        trace_again(interpreter);
    else if (uses < 2) /* else it is watched, and stays so */
        watch(interpreter, code, uses);
}
