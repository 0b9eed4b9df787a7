#include "agent/probing/span.h"

#include "agent/base/clock.h"
#include "agent/base/fork_count.h"
#include "agent/cpython/attrs_json.h"
#include "agent/cpython/text.h"
#include "agent/probing/python_part.h"
#include "agent/record/recorder.h"

#include <math.h>
#include <stddef.h>

#define CLOCK_CHECK_NS 1000000000ull /* how old what is known of the wall clock may be */

const struct recorder spans_recorder = {.by_itself = true};

/* ---- its row ---- */

/* The wall clock at a moment of CLOCK_MONOTONIC that is about now; one reading of a
 * clock is enough for both. [s] */
static double wall_time(uint64_t now)
{
    static int64_t offset;
    static uint64_t checked;

    if (now - __atomic_load_n(&checked, __ATOMIC_RELAXED) > CLOCK_CHECK_NS) {
        __atomic_store_n(&offset, (int64_t)realtime_ns() - (int64_t)now, __ATOMIC_RELAXED);
        __atomic_store_n(&checked, now, __ATOMIC_RELAXED);
    }
    return (double)(__atomic_load_n(&offset, __ATOMIC_RELAXED) + (int64_t)now) * 1e-9;
}

static void append(struct ring *ring, struct span *span, double duration, int64_t failed)
{
    spans_append(ring,
                 &(struct spans_row){
                     .id = span->id,
                     .parent = span->parent,
                     .name = span->name_text,
                     .tid = span->tid,
                     .task = attrs_json_bytes(span->task),
                     .start = span->start,
                     .duration = duration,
                     .failed = failed,
                     .attrs = attrs_json_bytes(span->attrs),
                 },
                 &span->ticket);
}

static void begin(struct span *span)
{
    static int64_t ids;
    _cleanup_span_context_ struct span_context place = {0};

    span->id = span->parent = RING_NULL_INTEGER;
    if (!recorder_first_use(RECORDED_SPANS) || !span_context_find(span->probing, &place))
        return;
    span->id = __atomic_add_fetch(&ids, 1, __ATOMIC_RELAXED);
    span->parent = place.span;
    span->tid = place.thread->tid;
    span->task = steal_pointer(place.task);
    span->forks = place.thread->forks;
    span->open = true;
    span->lost = false;
    span->ticket = (struct ring_ticket){0};
    span_context_enter(&place, span);
    span->start_ns = monotonic_ns();
    span->start = wall_time(span->start_ns);
    struct ring *ring = recorder_ring(RECORDED_SPANS); /* only now: other code may have run */
    if (ring)
        append(ring, span, NAN, RING_NULL_INTEGER);
}

/* A span that began in the parent of a forked process ends there. */
static void end_row(struct span *span, uint64_t now, int64_t failed)
{
    struct ring *ring = recorder_ring(RECORDED_SPANS);
    double duration = (double)(now - span->start_ns) * 1e-9;

    if (!ring || span->forks != fork_count())
        return;
    if (!spans_patch_duration_failed(ring, &span->ticket, duration, failed))
        append(ring, span, duration, failed);
}

static void end(struct span *span, bool failed)
{
    if (!span->open)
        return;
    end_row(span, monotonic_ns(), failed);
    span->open = false;
    span_context_leave(span);
    python_clear(&span->task);
}

/* ---- making one ---- */

static struct span *new_span(struct probing *probing);

static struct span *copy_span(struct span *span)
{
    struct span *copy = new_span(span->probing);
    if (!copy)
        return NULL;
    Py_IncRef(copy->name = span->name);
    Py_IncRef(copy->attrs = span->attrs);
    Py_IncRef(copy->text_owner = span->text_owner);
    copy->name_text = span->name_text;
    return copy;
}

static int set_name(struct span *span, PyObject *name)
{
    span->name = PyUnicode_FromObject(name); /* of a subclass only the text */
    if (!span->name)
        return -1;
    if (text_of(span->name, &span->name_text, &span->text_owner))
        return 0;
    PyErr_NoMemory();
    return -1;
}

static int set_attrs(struct span *span, PyObject *names, PyObject *const *values)
{
    char text[ATTRS_JSON_MAX];

    if (!names || PyTuple_Size(names) == 0)
        return 0;
    span->attrs =
        PyBytes_FromStringAndSize(text, (Py_ssize_t)attrs_json_write(names, values, text));
    return span->attrs ? 0 : -1;
}

PyObject *span_check_name(const char *function, PyObject *const *args, Py_ssize_t count)
{
    if (count == 1 && PyUnicode_Check(args[0]))
        return args[0];
    if (count == 1)
        PyErr_Format(PyExc_TypeError,
                     "%s() wants a name, a str; as in probing.%s(\"step\", loss=0.1)", function,
                     function);
    else
        PyErr_Format(PyExc_TypeError, "%s() takes one positional argument, the name, but got %zd",
                     function, count);
    return NULL;
}

PyObject *span_function(PyObject *capsule, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    struct probing *probing = probing_of(capsule);
    PyObject *name = span_check_name("span", args, count);
    struct span *span = probing && name ? new_span(probing) : NULL;

    if (span && set_name(span, name) == 0 && set_attrs(span, names, args + count) == 0)
        return (PyObject *)span;
    Py_DecRef((PyObject *)span);
    return NULL;
}

/* ---- entering and leaving ---- */

static PyObject *span_enter(PyObject *object, PyObject *unused)
{
    struct span *span = (struct span *)object, *entered = span;

    if (span->entered) {
        entered = copy_span(span);
        if (!entered)
            return NULL;
        entered->again = span->again;
        span->again = entered;
    }
    entered->entered = true;
    begin(entered);
    Py_IncRef(object);
    return object;
}

/* The link to the innermost span here of those that this object was entered for; else to the last
 * one. NULL: the object itself is the innermost. */
static struct span **find_again(struct span *span)
{
    for (struct span **link = &span->again; *link; link = &(*link)->again)
        if (span_context_is_innermost(*link))
            return link;
    return span->entered && span_context_is_innermost(span) ? NULL : &span->again;
}

static PyObject *span_exit(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    struct span *span = (struct span *)object;
    bool failed = count > 0 && args[0] != Py_None;
    struct span **link = span->again ? find_again(span) : NULL;

    if (link) {
        struct span *copy = *link;
        *link = copy->again;
        copy->again = NULL;
        end(copy, failed);
        Py_DecRef((PyObject *)copy);
    } else {
        span->entered = false;
        end(span, failed);
    }
    Py_IncRef(Py_None);
    return Py_None;
}

/* A copy of a span, for the functions that a decorator makes: each call has a span of its own. */
static PyObject *span_copy(PyObject *object, PyObject *unused)
{
    return (PyObject *)copy_span((struct span *)object);
}

/* ---- as a decorator ---- */

/* A function that does what `function` does, each time in a span that copy() makes; new. */
static PyObject *decorate(struct probing *probing, PyObject *copy, PyObject *function)
{
    _cleanup_unref_ PyObject *decorator = python_part(probing, "_decorate");
    return decorator ? PyObject_CallFunctionObjArgs(decorator, copy, function, NULL) : NULL;
}

/* span(function) */
static PyObject *span_call(PyObject *object, PyObject *args, PyObject *names)
{
    struct span *span = (struct span *)object;
    PyObject *function;

    if (names && PyDict_Size(names) > 0)
        return PyErr_Format(PyExc_TypeError,
                            "a span takes the function that it decorates, nothing by name");
    if (!PyArg_ParseTuple(args, "O:span", &function))
        return NULL;
    _cleanup_unref_ PyObject *copy = PyObject_GetAttrString(object, "_copy");
    return copy ? decorate(span->probing, copy, function) : NULL;
}

/* ---- its end ---- */

static void span_dealloc(PyObject *object)
{
    struct span *span = (struct span *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject *capsule = span->capsule;

    while (span->again) {
        struct span *again = span->again;
        span->again = again->again;
        again->again = NULL;
        Py_DecRef((PyObject *)again);
    }
    if (span->open) /* nobody can end it any more */
        end_row(span, monotonic_ns(), RING_NULL_INTEGER);
    span_context_dropped(span);
    Py_DecRef(span->name);
    Py_DecRef(span->attrs);
    Py_DecRef(span->text_owner);
    Py_DecRef(span->task);
    PyObject_Free(object);
    Py_DecRef((PyObject *)type);
    Py_DecRef(capsule);
}

/* ---- the type ---- */

/* What the one that was entered last says. */
static PyObject *get_number(PyObject *object, void *offset)
{
    struct span *span = (struct span *)object;
    if (span->again)
        span = span->again;
    int64_t number = *(const int64_t *)((const char *)span + (size_t)offset);
    if (number != RING_NULL_INTEGER)
        return PyLong_FromLongLong(number);
    Py_IncRef(Py_None);
    return Py_None;
}

static PyObject *get_name(PyObject *object, void *unused)
{
    PyObject *name = ((struct span *)object)->name;
    Py_IncRef(name);
    return name;
}

static PyGetSetDef attributes[] = {
    {"id", get_number, NULL, "Its number in python.spans; None: it is not recorded.",
     (void *)offsetof(struct span, id)},
    {"parent", get_number, NULL, "The number of the span around it; None: there is none.",
     (void *)offsetof(struct span, parent)},
    {"name", get_name, NULL, "As it was called.", NULL},
    {NULL},
};

static PyMethodDef methods[] = {
    {"__enter__", span_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))span_exit, METH_FASTCALL, NULL},
    {"_copy", span_copy, METH_NOARGS, NULL},
    {NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, span_dealloc},
    {Py_tp_call, span_call},
    {Py_tp_getset, attributes},
    {Py_tp_methods, methods},
    {Py_tp_doc, (char *)"A part of what a program does; made by probing.span()."},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "probing.Span",
    .basicsize = sizeof(struct span),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};

/* The type and all that is of it keep the capsule. */
static int make_type(struct probing *probing)
{
    PyObject *type = PyType_FromSpec(&spec);
    if (!type || PyObject_SetAttrString(type, "_probefs", probing->capsule) < 0) {
        Py_DecRef(type);
        return -1;
    }
    probing->span_type = type;
    return 0;
}

static struct span *new_span(struct probing *probing)
{
    if (!probing->span_type && make_type(probing) < 0)
        return NULL;
    struct span *span = PyObject_Malloc(sizeof *span);
    if (!span)
        return (struct span *)PyErr_NoMemory();
    memset(span, 0, sizeof *span);
    PyObject_Init((PyObject *)span, (PyTypeObject *)probing->span_type);
    span->capsule = probing->capsule;
    Py_IncRef(span->capsule);
    span->probing = probing;
    span->id = span->parent = RING_NULL_INTEGER;
    return span;
}
