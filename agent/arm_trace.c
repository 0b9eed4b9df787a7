/* Before CPython 3.12: the trace function, in the frames of code that has breakpoints (trace.h). New code is found as it is entered
 * first, with all that is defined in it. */
#include "agent/arm.h"

#include "agent/agent.h"
#include "agent/codes.h"
#include "agent/raising.h"
#include "agent/reach.h"
#include "agent/trace.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Of CPython's code.h and opcode.h, 3.10 and 3.11. */
#define GENERATORS (0x20 | 0x80 | 0x200) /* CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR */
#define RETURN_VALUE 83
#define RESUME 151
#define RESUME_START 0 /* its argument where a function begins */

/* By interpreter. */
static struct arm {
    bool raises;   /* exceptions are of interest */
    bool hidden;   /* code is that CPython enters without asking anybody */
    bool loading;  /* code is being looked at as it is entered ... */
    bool found;    /* ... and is of interest */
    char costs[PROTO_WORDS_MAX];
} arms[INTERPRETERS_MAX];

static struct arm *arm_of(const struct interpreter *interpreter) { return &arms[interpreter - agent.interpreters]; }

/* ---- what happens ---- */

/* Where a frame is, in bytes; -1: before its first instruction. */
static int offset_in(PyFrameObject *frame)
{
    _cleanup_unref_ PyObject *lasti = PyObject_GetAttrString((PyObject *)frame, "f_lasti");
    long at = lasti ? PyLong_AsLong(lasti) : -1;

    PyErr_Clear();
    return (int)at;
}

/* The instruction there, with its argument; -1: none. */
static int instruction(PyFrameObject *frame, PyObject *code)
{
    _cleanup_unref_ PyObject *bytes = PyObject_GetAttrString(code, "co_code");
    int at = offset_in(frame);
    const unsigned char *all = bytes ? (unsigned char *)PyBytes_AsString(bytes) : NULL;

    PyErr_Clear();
    return all && at >= 0 && at + 1 < PyBytes_Size(bytes) ? all[at] | all[at + 1] << 8 : -1;
}

/* Generators and coroutines say that they are called, and return, whenever they go on and give up control. */
static bool is_generator(PyObject *code) { return codes_number(code, CODE_FLAGS) & GENERATORS; }

static bool is_start(PyFrameObject *frame, PyObject *code)
{
    if (!is_generator(code))
        return true;
    int at = instruction(frame, code);
    return python.version < 0x030b ? at < 0 : at == (RESUME | RESUME_START << 8);
}

static bool is_return(PyFrameObject *frame, PyObject *code)
{
    return !is_generator(code) || (instruction(frame, code) & 0xff) == RETURN_VALUE;
}

static bool get_to(struct interpreter *interpreter, const struct place *place, PyFrameObject *frame, PyObject *code, int line,
                   PyObject *value)
{
    struct reached reached = {frame, code, line, value, NULL, STOP_BREAKPOINT};
    struct reach here;

    return !reach_take(&here, place) || reach_hit(&here, interpreter, &reached);
}

/* That an iterator ends in a `for` is told as if it had been raised there, without a traceback. */
static bool raised(struct interpreter *interpreter, PyFrameObject *frame, PyObject *arg)
{
    PyObject *exception = PyTuple_GetItem(arg, 1), *traceback = PyTuple_GetItem(arg, 2); /* borrowed from it */

    if (!exception || !PyExceptionInstance_Check(exception) || traceback == Py_None)
        return true;
    return raising_seen(interpreter, frame, exception, traceback);
}

static bool at_line(struct interpreter *interpreter, const struct places *places, PyFrameObject *frame, PyObject *code)
{
    int line = PyFrame_GetLineNumber(frame);
    const struct place *place = places_at(places, code, PLACE_LINE, line);

    if (!place || (place->again && places_again(places, place, offset_in(frame))))
        return true;
    return get_to(interpreter, place, frame, code, line, NULL);
}

static bool hear(struct interpreter *interpreter, PyFrameObject *frame, enum trace_what what, PyObject *arg)
{
    const struct places *places = places_here(interpreter);
    _cleanup_unref_ PyObject *code = (PyObject *)PyFrame_GetCode(frame);

    if (!places)
        return true;
    if (what == TRACE_EXCEPTION)
        return raised(interpreter, frame, arg);
    if (what == TRACE_LINE)
        return at_line(interpreter, places, frame, code);
    unsigned events = places_in(places, code);
    if (what == TRACE_CALL && events & 1u << PLACE_START && is_start(frame, code))
        return get_to(interpreter, places_at(places, code, PLACE_START, 0), frame, code, 0, NULL);
    if (what == TRACE_RETURN && events & 1u << PLACE_RETURN && arg && is_return(frame, code))
        return get_to(interpreter, places_at(places, code, PLACE_RETURN, 0), frame, code, 0, arg);
    return true;
}

/* ---- code that has been loaded ---- */

static trace_wants wants;

static int listen(struct interpreter *interpreter)
{
    struct arm *arm = arm_of(interpreter);
    enum trace_scope scope = arm->hidden ? TRACE_ALL : arm->raises ? TRACE_RAISES : TRACE_WANTED;
    return trace_add(interpreter, TRACE_BREAKPOINTS, hear, wants, scope, arm->costs);
}

static void load(struct interpreter *interpreter, PyObject *code)
{
    struct arm *arm = arm_of(interpreter);
    bool hidden = arm->hidden;

    arm->loading = true;
    arm->found = false;
    places_tree_made(interpreter, code);
    arm->loading = false;
    if (arm->hidden != hidden)
        listen(interpreter);
    else if (arm->found)
        trace_again(interpreter);
}

static enum trace_interest wants(struct interpreter *interpreter, PyThreadState *state, PyObject *code, bool entered)
{
    struct arm *arm = arm_of(interpreter);

    if (!places_here(interpreter))
        return TRACE_NEVER;
    if (entered && !arm->loading && !places_in(places_here(interpreter), code)) {
        load(interpreter, code);
    }
    return places_in(places_here(interpreter), code) ? TRACE_NOW : TRACE_NEVER;
}

/* ---- arming ---- */

static int begin(struct interpreter *interpreter, char words[PROTO_WORDS_MAX])
{
    int r = listen(interpreter);
    if (r < 0)
        snprintf(words, PROTO_WORDS_MAX, "this interpreter lacks what it takes to stop at code, or forbids it");
    return r;
}

/* What specialized instructions of 3.11 call: they know no frame evaluation function. */
static bool is_hidden(PyObject *code)
{
    _cleanup_unref_ PyObject *name = codes_get(code, CODE_NAME);
    return python.version >= 0x030b && name && PyUnicode_CompareWithASCIIString(name, "__getitem__") == 0;
}

/* It takes effect with what comes next: raises(), or the end of wants(). */
static int watch_code(struct interpreter *interpreter, PyObject *code, unsigned events)
{
    struct arm *arm = arm_of(interpreter);

    arm->found = true;
    arm->hidden = arm->hidden || (events && is_hidden(code));
    return 0;
}

static int watch_raises(struct interpreter *interpreter, bool wanted)
{
    arm_of(interpreter)->raises = wanted;
    return listen(interpreter);
}

static void end(struct interpreter *interpreter)
{
    trace_remove(interpreter, TRACE_BREAKPOINTS);
    memset(arm_of(interpreter), 0, sizeof *arm_of(interpreter));
}

static const char *costs(const struct interpreter *interpreter) { return arm_of(interpreter)->costs; }

const struct arming arm_trace = {begin, watch_code, watch_raises, end, costs};
