/* From CPython 3.12 on: events of sys.monitoring, local to the code objects that have breakpoints.
 *
 * A line at which there is nothing is told of once: DISABLE switches it off there. CPython tells no other tool of
 * anything in this thread while a callback runs. What runs code of the program, and gives the GIL up, is hit_reached(). */
#include "agent/arm.h"

#include "agent/agent.h"
#include "agent/raising.h"
#include "agent/reach.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum code_event { CODE_CREATED, CODE_DESTROYED }; /* PyCodeEvent of CPython's cpython/code.h */
enum { LINE, START, RETURN, RAISE, EVENTS };

static struct {
    int (*add_watcher)(int (*)(enum code_event, PyObject *)); /* PyCode_AddWatcher */
    int (*clear_watcher)(int);                                /* PyCode_ClearWatcher */
    int (*lasti)(PyFrameObject *);                            /* PyFrame_GetLasti */
    PyObject *disable;                                        /* held for good: it is the same in all interpreters */
} api;

/* By interpreter. */
static struct {
    PyObject *functions[EVENTS]; /* by which sys.monitoring calls us; borrowed, NULL: it doesn't */
    unsigned turn;               /* interpreter->monitoring.turn when code was last watched */
    int watcher;                 /* of code objects: id + 1; 0: there is none */
} arms[INTERPRETERS_MAX];

static size_t slot_of(const struct interpreter *interpreter) { return (size_t)(interpreter - agent.interpreters); }

/* Whose callback this is; NULL: nobody's any more. */
static struct interpreter *find(const PyObject *function, unsigned event)
{
    for (size_t i = 0; i < INTERPRETERS_MAX; i++)
        if (arms[i].functions[event] == function)
            return &agent.interpreters[i];
    return NULL;
}

static PyObject *disable(void)
{
    Py_IncRef(api.disable);
    return api.disable;
}

/* ---- what is told ---- */

static PyObject *reach(PyObject *function, enum place_event event, unsigned number, PyObject *code, int line,
                       PyObject *value)
{
    struct interpreter *interpreter = find(function, number);
    const struct places *places = interpreter ? places_here(interpreter) : NULL;
    struct reached reached = {NULL, code, line, value, NULL, STOP_BREAKPOINT};
    struct reach here;

    const struct place *place = places ? places_at(places, code, event, event == PLACE_LINE ? line : 0) : NULL;
    reached.frame = PyEval_GetFrame();
    if (!reached.frame || (place && place->again && places_again(places, place, api.lasti(reached.frame))) ||
        !reach_take(&here, place))
        return disable();
    Py_IncRef(function);
    bool fine = reach_hit(&here, interpreter, &reached);
    Py_DecRef(function);
    return fine ? monitoring_nothing() : NULL;
}

static PyObject *on_line(PyObject *function, PyObject *const *args, size_t count, PyObject *names)
{
    return reach(function, PLACE_LINE, LINE, args[0], (int)PyLong_AsLong(args[1]), NULL);
}

static PyObject *on_start(PyObject *function, PyObject *const *args, size_t count, PyObject *names)
{
    return reach(function, PLACE_START, START, args[0], 0, NULL);
}

static PyObject *on_return(PyObject *function, PyObject *const *args, size_t count, PyObject *names)
{
    return reach(function, PLACE_RETURN, RETURN, args[0], 0, args[2]);
}

static PyObject *on_raise(PyObject *function, PyObject *const *args, size_t count, PyObject *names)
{
    struct interpreter *interpreter = find(function, RAISE);
    _cleanup_unref_ PyObject *frame = interpreter ? (PyObject *)PyEval_GetFrame() : NULL;
    PyErr_Clear();
    if (!frame)
        return monitoring_nothing();
    Py_IncRef(frame);
    _cleanup_unref_ PyObject *traceback = PyException_GetTraceback(args[2]);
    Py_IncRef(function);
    bool fine = raising_seen(interpreter, (PyFrameObject *)frame, args[2], traceback);
    Py_DecRef(function);
    return fine ? monitoring_nothing() : NULL;
}

static int on_code(enum code_event event, PyObject *code)
{
    const PyInterpreterState *here = PyInterpreterState_Get();

    for (size_t i = 0; i < INTERPRETERS_MAX; i++) {
        struct interpreter *interpreter = &agent.interpreters[i];
        if (!arms[i].watcher || interpreter->state != here)
            continue;
        if (event == CODE_CREATED)
            places_code_made(interpreter, code);
        else if (event == CODE_DESTROYED)
            places_code_gone(interpreter, code);
    }
    return 0;
}

/* ---- arming ---- */

static const struct {
    const char *name;
    monitoring_function *call;
} events[] = {
    [LINE] = {"LINE", on_line},
    [START] = {"PY_START", on_start},
    [RETURN] = {"PY_RETURN", on_return},
};

static int say(int r, char words[PROTO_WORDS_MAX])
{
    if (r == -EBUSY)
        snprintf(words, PROTO_WORDS_MAX, "other tools have all ids of sys.monitoring (see sys.monitoring.get_tool)");
    else if (r == -EOPNOTSUPP)
        snprintf(words, PROTO_WORDS_MAX, "this interpreter lacks what it takes to stop at code");
    return r;
}

static int begin(struct interpreter *interpreter, char words[PROTO_WORDS_MAX])
{
    size_t slot = slot_of(interpreter);

    api.add_watcher = (int (*)(int (*)(enum code_event, PyObject *)))dlsym(RTLD_DEFAULT, "PyCode_AddWatcher");
    api.clear_watcher = (int (*)(int))dlsym(RTLD_DEFAULT, "PyCode_ClearWatcher");
    if (!api.disable && monitoring_available())
        api.disable = monitoring_disable();
    api.lasti = (int (*)(PyFrameObject *))dlsym(RTLD_DEFAULT, "PyFrame_GetLasti");
    if (!api.lasti || !api.add_watcher || !api.clear_watcher || !api.disable)
        return say(-EOPNOTSUPP, words);
    for (size_t i = 0; i < ARRAY_SIZE(events); i++) {
        int r = monitoring_add(&interpreter->monitoring, events[i].name, events[i].call,
                               MONITORING_LOCAL | MONITORING_RUNS_CODE, &arms[slot].functions[i]);
        if (r < 0)
            return say(r, words);
    }
    arms[slot].turn = interpreter->monitoring.turn;
    arms[slot].watcher = api.add_watcher(on_code) + 1;
    return arms[slot].watcher ? 0 : -EIO;
}

static int watch_code(struct interpreter *interpreter, PyObject *code, unsigned wanted)
{
    long mask = 0;

    for (unsigned i = 0; i < ARRAY_SIZE(events); i++)
        if (wanted & 1u << i)
            mask |= monitoring_mask(&interpreter->monitoring, events[i].name);
    return monitoring_watch(&interpreter->monitoring, code, mask);
}

/* RAISE can't be local: it is heard of only while that is wanted. */
static int watch_raises(struct interpreter *interpreter, bool wanted)
{
    PyObject **function = &arms[slot_of(interpreter)].functions[RAISE];

    if (wanted == (*function != NULL))
        return 0;
    if (wanted)
        return monitoring_add(&interpreter->monitoring, "RAISE", on_raise, MONITORING_RUNS_CODE, function);
    *function = NULL;
    monitoring_remove(&interpreter->monitoring, "RAISE", on_raise);
    return 0;
}

static void forget_code(void *arg, PyObject *code, unsigned unused)
{
    watch_code(arg, code, 0);
    PyErr_Clear();
}

static void end(struct interpreter *interpreter)
{
    size_t slot = slot_of(interpreter);

    PyErr_Clear();
    if (interpreter->monitoring.taken)
        places_each(interpreter->places, forget_code, interpreter);
    if (arms[slot].watcher)
        api.clear_watcher(arms[slot].watcher - 1);
    PyErr_Clear();
    for (size_t i = 0; i < ARRAY_SIZE(events); i++)
        monitoring_remove(&interpreter->monitoring, events[i].name, events[i].call);
    watch_raises(interpreter, false);
    memset(&arms[slot], 0, sizeof arms[slot]);
}

const struct arming arm_monitoring = {begin, watch_code, watch_raises, end};
