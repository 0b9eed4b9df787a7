/* Runs of the cyclic garbage collector, from gc.callbacks (invoke_gc_callback() in
 * Python/gc.c, Modules/gcmodule.c before 3.13). The interpreter walks the list that it made,
 * whatever the program has put into the module's attribute since: so the list is kept as
 * well as the function in it. */
#include "agent/base/clock.h"
#include "agent/interpreter/interpreter.h"
#include "agent/record/recorder.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The run that is under way in each interpreter: there is one at a time. */
static struct {
    uint64_t since_ns; /* CLOCK_MONOTONIC; 0: none */
    double ts;
} runs[INTERPRETERS_MAX];

static int64_t number_of(PyObject *info, const char *name)
{
    PyObject *value = PyDict_GetItemString(info, name); /* borrowed */
    long long number = value ? PyLong_AsLongLong(value) : -1;

    if (PyErr_Occurred())
        PyErr_Clear();
    return number < 0 ? RING_NULL_INTEGER : number;
}

static void record_run(size_t which, PyObject *info)
{
    struct ring *ring = recorder_ring(RECORDED_GC);
    struct gc_row row = {.ts = runs[which].ts, .tid = gettid()};

    if (!ring || !runs[which].since_ns)
        return;
    row.duration = (double)(monotonic_ns() - runs[which].since_ns) * 1e-9;
    runs[which].since_ns = 0;
    row.generation = number_of(info, "generation");
    row.collected = number_of(info, "collected");
    row.uncollectable = number_of(info, "uncollectable");
    (void)gc_append(ring, &row, NULL);
}

/* The function in gc.callbacks. Called with anything else it does nothing; it never fails. */
static PyObject *note(PyObject *capsule, PyObject *args)
{
    const struct interpreter *interpreter = guest_owner(capsule);
    PyObject *phase, *info;

    if (recorder_ring(RECORDED_GC) && interpreter && PyArg_ParseTuple(args, "UO", &phase, &info)) {
        size_t which = interpreter_index(interpreter);
        if (PyUnicode_CompareWithASCIIString(phase, "stop") == 0) {
            record_run(which, info);
        } else {
            runs[which].ts = realtime_s();
            runs[which].since_ns = monotonic_ns();
        }
    }
    PyErr_Clear();
    Py_IncRef(Py_None);
    return Py_None;
}

static PyMethodDef note_def = {"probefs_gc", note, METH_VARARGS, NULL};

/* The index at which a list has that very object; -1: nowhere. */
static Py_ssize_t find(PyObject *list, PyObject *object)
{
    for (Py_ssize_t i = 0; i < PyList_Size(list); i++)
        if (PyList_GetItem(list, i) == object)
            return i;
    return -1;
}

/* A new reference: the function and the list that it is in, of this interpreter. */
static PyObject *make_pair(struct interpreter *interpreter, char words[PROTO_WORDS_MAX])
{
    _cleanup_unref_ PyObject *gc = PyImport_ImportModule("gc");
    _cleanup_unref_ PyObject *list = gc ? PyObject_GetAttrString(gc, "callbacks") : NULL;
    _cleanup_unref_ PyObject *function = list ? guest_function(&interpreter->guest, &note_def)
                                              : NULL;

    if (!function)
        return NULL;
    if (PyList_Size(list) < 0) { /* that fails for what is no list */
        snprintf(words, PROTO_WORDS_MAX, "the program has replaced gc.callbacks");
        return NULL;
    }
    return PyTuple_Pack(2, function, list);
}

static int gc_on(struct interpreter *interpreter, const struct proto_record *record,
                 char words[PROTO_WORDS_MAX])
{
    PyObject *pair = *recorder_kept(interpreter, RECORDED_GC);
    if (!pair)
        pair = make_pair(interpreter, words);
    if (!pair)
        return -EIO;
    *recorder_kept(interpreter, RECORDED_GC) = pair;
    PyObject *function = PyTuple_GetItem(pair, 0), *list = PyTuple_GetItem(pair, 1);
    runs[interpreter_index(interpreter)].since_ns = 0;
    if (find(list, function) >= 0 || PyList_Append(list, function) == 0)
        return 0;
    python_clear(recorder_kept(interpreter, RECORDED_GC));
    return -EIO;
}

static void gc_off(struct interpreter *interpreter, char words[PROTO_WORDS_MAX])
{
    PyObject *pair = *recorder_kept(interpreter, RECORDED_GC);
    PyObject *function = PyTuple_GetItem(pair, 0), *list = PyTuple_GetItem(pair, 1);

    for (Py_ssize_t i; (i = find(list, function)) >= 0;)
        if (PyList_SetSlice(list, i, i + 1, NULL) < 0)
            break;
}

const struct recorder gc_recorder = {.on = gc_on, .off = gc_off, .python = true};
