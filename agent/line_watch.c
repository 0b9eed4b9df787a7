/* Values that are compared at each line: variables of functions, at the lines of their code only, and whatever else has no place
 * that could be watched, at all lines.
 *
 * What a line did is seen when the next one begins, or the function returns. So the line before, in that frame or, of what may be
 * changed from anywhere, in that thread, is the one that wrote. */
#include "agent/agent.h"
#include "agent/trace.h"
#include "agent/watched.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PLACES 32            /* frames, or threads, that are followed at a time */
#define EVERYWHERE "it is evaluated at each line of all code, which slows the program"

enum point { POINT_START, POINT_LINE, POINT_END };

/* Where a frame, or a thread, was last. */
struct line_place {
    const void *owner;       /* NULL: free */
    const struct watch *watch; /* of a frame */
    PyObject *value;         /* in that frame; NULL: unbound */
    PyObject *code;
    int line;
};

static struct line_place places[PLACES];
static unsigned next_place;  /* the one that is taken where none is free */
static PyObject *(*get_variable)(PyFrameObject *, PyObject *); /* PyFrame_GetVar, 3.12 on */

/* ---- places ---- */

static void place_clear(struct line_place *place)
{
    struct line_place old = *place;

    *place = (struct line_place){0};
    Py_DecRef(old.value);
    Py_DecRef(old.code);
}

/* *fresh: it is new. */
static struct line_place *place_of(const void *owner, const struct watch *watch, bool *fresh)
{
    struct line_place *place = NULL;

    *fresh = false;
    for (unsigned i = 0; i < PLACES; i++) {
        if (places[i].owner == owner && places[i].watch == watch)
            return &places[i];
        if (!places[i].owner)
            place = &places[i];
    }
    if (!place)
        place_clear(place = &places[next_place++ % PLACES]);
    *fresh = true;
    place->owner = owner;
    place->watch = watch;
    return place;
}

static void place_move(struct line_place *place, PyObject *code, int line)
{
    PyObject *old = place->code;

    place->line = line;
    if (old == code)
        return;
    Py_IncRef(place->code = code);
    Py_DecRef(old);
}

/* ---- what is there ---- */

static PyObject *variable(struct interpreter *interpreter, struct watch *watch, PyFrameObject *frame)
{
    if (!get_variable)
        return watch_value(interpreter, watch, frame);
    PyObject *value = get_variable(frame, watch->storage.key);
    PyErr_Clear();
    return value;
}

static const char *text_in(PyObject *code, const char *attribute, PyObject **owner)
{
    *owner = PyObject_GetAttrString(code, attribute);
    const char *text = *owner ? PyUnicode_AsUTF8AndSize(*owner, NULL) : NULL;
    PyErr_Clear();
    return text;
}

/* Something may be another value, since the line that `place` is at. */
static bool compare(struct interpreter *interpreter, struct watch *watch, PyObject **last, PyObject *value,
                    const struct line_place *place, PyFrameObject *frame, PyObject *code, int line)
{
    struct change change = {.address = (uint64_t)RING_NULL_INTEGER, .line = RING_NULL_INTEGER};
    _cleanup_unref_ PyObject *held = NULL, *file = NULL, *func = NULL;

    if (*last == value) /* nothing that could be changed in place: of that it is a copy */
        return true;
    Py_IncRef(held = place->code);
    if (held) {
        change.file = text_in(held, "co_filename", &file);
        change.func = text_in(held, python.version >= 0x030b ? "co_qualname" : "co_name", &func);
        change.line = place->line > 0 ? place->line : RING_NULL_INTEGER;
    }
    return watch_seen(interpreter, watch, last, value, &change, frame, code, line);
}

static bool at_local(struct interpreter *interpreter, struct watch *watch, enum point point, PyFrameObject *frame,
                     PyObject *code, int line)
{
    bool fresh, well = true;
    _cleanup_unref_ PyObject *value = variable(interpreter, watch, frame), *copy = watch_copy(interpreter, value);
    if (watch->by != BY_LINE) /* it has been removed meanwhile */
        return true;
    struct line_place *place = place_of(frame, watch, &fresh);

    if (fresh || point == POINT_START) {
        PyObject *before = place->value;
        place->value = steal_pointer(copy);
        copy = before; /* given up at the end, when nothing hangs on it any more */
    } else {
        well = compare(interpreter, watch, &place->value, value, place, frame, code, line);
    }
    if (place->owner == frame && place->watch == watch) { /* it hasn't been taken meanwhile */
        if (point == POINT_END)
            place_clear(place);
        else
            place_move(place, code, point == POINT_LINE ? line : place->line);
    }
    return well;
}

static bool at_any(struct interpreter *interpreter, struct watch *watch, const struct line_place *place,
                   PyFrameObject *frame, PyObject *code, int line)
{
    _cleanup_unref_ PyObject *value = watch_value(interpreter, watch, NULL);

    return compare(interpreter, watch, &watch->value, value, place, frame, code, line);
}

static bool at(struct interpreter *interpreter, enum point point, PyFrameObject *frame, PyObject *code, int line)
{
    struct watch *held[WATCHES_MAX];
    size_t count = 0;
    bool well = true, fresh, any = false;

    for (struct watch *watch = watches; watch; watch = watch->next)
        if (watch->by == BY_LINE && (watch->storage.kind != STORAGE_LOCAL || watch->storage.owner == code))
            held[count++] = watch_hold(watch);
    const PyThreadState *state = PyThreadState_Get();
    for (size_t i = 0; i < count; i++) {
        bool local = held[i]->storage.kind == STORAGE_LOCAL;
        any = any || !local;
        if (well && held[i]->by == BY_LINE)
            well = local ? at_local(interpreter, held[i], point, frame, code, line)
                         : at_any(interpreter, held[i], place_of(state, NULL, &fresh), frame, code, line);
        watch_drop(held[i]);
    }
    if (any && point == POINT_LINE)
        place_move(place_of(state, NULL, &fresh), code, line);
    return well;
}

/* ---- sys.monitoring, 3.12 on ---- */

static struct interpreter *main_interpreter(void) { return &agent.interpreters[0]; }

static PyObject *hear(enum point point, PyObject *const *args)
{
    PyFrameObject *frame = PyEval_GetFrame(); /* borrowed */
    PyObject *code = args[0];
    int line = point == POINT_LINE ? (int)PyLong_AsLong(args[1]) : 0;

    if (!frame)
        return monitoring_nothing();
    Py_IncRef((PyObject *)frame);
    Py_IncRef(code);
    if (point == POINT_END)
        line = PyFrame_GetLineNumber(frame);
    bool well = at(main_interpreter(), point, frame, code, line);
    Py_DecRef(code);
    Py_DecRef((PyObject *)frame);
    return well ? monitoring_nothing() : NULL;
}

static PyObject *on_start(PyObject *function, PyObject *const *args, size_t count, PyObject *names)
{
    return hear(POINT_START, args);
}

static PyObject *on_line(PyObject *function, PyObject *const *args, size_t count, PyObject *names)
{
    return hear(POINT_LINE, args);
}

static PyObject *on_return(PyObject *function, PyObject *const *args, size_t count, PyObject *names)
{
    return hear(POINT_END, args);
}

static const struct {
    const char *name;
    monitoring_function *call;
} events[] = {{"PY_START", on_start}, {"LINE", on_line}, {"PY_RETURN", on_return}};

static bool is_everywhere(void)
{
    for (const struct watch *watch = watches; watch; watch = watch->next)
        if (watch->by == BY_LINE && watch->storage.kind != STORAGE_LOCAL)
            return true;
    return false;
}

static bool is_any(void)
{
    const struct watch *watch = watches;
    while (watch && watch->by != BY_LINE)
        watch = watch->next;
    return watch;
}

static void deafen(struct monitoring *monitoring)
{
    for (size_t i = 0; i < ARRAY_SIZE(events); i++)
        monitoring_remove(monitoring, events[i].name, events[i].call);
}

static int listen_monitoring(struct interpreter *interpreter)
{
    struct monitoring *monitoring = &interpreter->watching;
    enum monitoring_flags flags = MONITORING_RUNS_CODE | (is_everywhere() ? 0 : MONITORING_LOCAL);
    PyObject *function;
    long mask = 0;
    int r = 0;

    deafen(monitoring);
    if (!is_any())
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(events) && r == 0; i++) {
        r = monitoring_add(monitoring, events[i].name, events[i].call, flags, &function);
        mask |= monitoring_mask(monitoring, events[i].name);
    }
    for (const struct watch *watch = watches; watch && r == 0 && flags & MONITORING_LOCAL; watch = watch->next)
        if (watch->by == BY_LINE)
            r = monitoring_watch(monitoring, watch->storage.owner, mask);
    if (r < 0)
        deafen(monitoring);
    return r;
}

/* ---- a trace function, before ---- */

static enum trace_interest wants(struct interpreter *interpreter, PyThreadState *state, PyObject *code, bool entered)
{
    const struct watch *watch = watches;
    while (watch && !(watch->by == BY_LINE && watch->storage.owner == code))
        watch = watch->next;
    return watch ? TRACE_NOW : TRACE_NEVER;
}

static bool on_trace(struct interpreter *interpreter, PyFrameObject *frame, enum trace_what what, PyObject *arg)
{
    enum point point = what == TRACE_CALL ? POINT_START : what == TRACE_RETURN ? POINT_END : POINT_LINE;

    if (what == TRACE_EXCEPTION || interpreter != main_interpreter())
        return true;
    _cleanup_unref_ PyObject *code = (PyObject *)PyFrame_GetCode(frame);
    return at(interpreter, point, frame, code, PyFrame_GetLineNumber(frame));
}

static int listen_trace(struct interpreter *interpreter, char words[PROTO_WORDS_MAX])
{
    if (is_any())
        return trace_add(interpreter, TRACE_WATCHES, on_trace, wants, is_everywhere() ? TRACE_ALL : TRACE_WANTED,
                         words);
    trace_remove(interpreter, TRACE_WATCHES);
    return 0;
}

/* ---- on and off ---- */

static int listen(struct interpreter *interpreter, char words[PROTO_WORDS_MAX])
{
    return python.version >= 0x030c ? listen_monitoring(interpreter) : listen_trace(interpreter, words);
}

int line_watch_begin(struct interpreter *interpreter, struct watch *watch, char words[PROTO_WORDS_MAX])
{
    char said[PROTO_WORDS_MAX] = "";

    get_variable = (PyObject * (*)(PyFrameObject *, PyObject *)) dlsym(RTLD_DEFAULT, "PyFrame_GetVar");
    watch->by = BY_LINE;
    int r = listen(interpreter, said);
    if (r == 0) {
        const char *note = said[0] ? said : watch->storage.kind != STORAGE_LOCAL ? EVERYWHERE : "";
        snprintf(watch->how, sizeof watch->how, "%s", note);
        return 0;
    }
    PyErr_Clear();
    line_watch_end(interpreter, watch);
    snprintf(words, PROTO_WORDS_MAX, r == -EBUSY ? "other tools have all of sys.monitoring's numbers"
                                                 : "lines can't be followed here");
    return r;
}

void line_watch_end(struct interpreter *interpreter, struct watch *watch)
{
    char words[PROTO_WORDS_MAX];

    watch->by = BY_NOTHING;
    for (unsigned i = 0; i < PLACES; i++)
        if (places[i].watch == watch || !is_any())
            place_clear(&places[i]);
    listen(interpreter, words);
    PyErr_Clear();
}
