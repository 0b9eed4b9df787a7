/* The steps of a PyTorch training loop. What finds and times them is Python (torch/), in a
 * namespace of its own; here is what it writes its rows with. */
#include "agent/cpython/embedded.h"
#include "agent/cpython/exception_words.h"
#include "agent/interpreter/interpreter.h"
#include "agent/record/recorder.h"
#include "agent/record/rings.h"
#include "agent/torch_sources.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define RATE 0.05
#define STEPS 5
#define STEPS_MAX 100
#define ROW_ARGUMENTS 11
#define PROFILE_ROW_ARGUMENTS 7

static const struct embedded sources[] = {
    {"<probefs torch imported>", source_imported},     {"<probefs torch clocks>", source_clocks},
    {"<probefs torch modules>", source_modules},       {"<probefs torch calls>", source_calls},
    {"<probefs torch optimizers>", source_optimizers}, {"<probefs torch profile>", source_profile},
    {"<probefs torch trace>", source_trace},           {NULL, NULL},
};

static PyObject *none(void)
{
    Py_IncRef(Py_None);
    return Py_None;
}

static double real_of(PyObject *value) { return value == Py_None ? NAN : PyFloat_AsDouble(value); }

static int64_t integer_of(PyObject *value)
{
    return value == Py_None ? RING_NULL_INTEGER : PyLong_AsLongLong(value);
}

/* row(ts, step, seq, module, stage, time_offset, duration, allocated, max_allocated, cached,
 * max_cached): the ticket of the row, None if it was not written. */
static PyObject *row(PyObject *capsule, PyObject *const *args, Py_ssize_t n)
{
    struct ring *ring = recorder_ring(RECORDED_TORCH_TRACE);
    struct ring_ticket ticket;

    if (n != ROW_ARGUMENTS)
        return PyErr_Format(PyExc_TypeError, "row() takes %d arguments", ROW_ARGUMENTS);
    struct torch_trace_row values = {
        .ts = real_of(args[0]),
        .step = integer_of(args[1]),
        .seq = integer_of(args[2]),
        .module = recorder_text(args[3]),
        .stage = recorder_text(args[4]),
        .time_offset = real_of(args[5]),
        .duration = real_of(args[6]),
        .allocated = integer_of(args[7]),
        .max_allocated = integer_of(args[8]),
        .cached = integer_of(args[9]),
        .max_cached = integer_of(args[10]),
    };
    if (PyErr_Occurred())
        return NULL;
    if (!ring || !torch_trace_append(ring, &values, &ticket))
        return none();
    return PyBytes_FromStringAndSize((const char *)&ticket, sizeof ticket);
}

/* complete(ticket, time_offset, duration): fills in what row() left open. */
static PyObject *complete(PyObject *capsule, PyObject *const *args, Py_ssize_t n)
{
    struct ring *ring = recorder_ring(RECORDED_TORCH_TRACE);
    struct ring_ticket ticket;

    if (n != 3 || PyBytes_Size(args[0]) != sizeof ticket)
        return PyErr_Occurred()
                   ? NULL
                   : PyErr_Format(PyExc_TypeError, "complete(ticket, offset, duration)");
    memcpy(&ticket, PyBytes_AsString(args[0]), sizeof ticket);
    double offset = real_of(args[1]), duration = real_of(args[2]);
    if (PyErr_Occurred())
        return NULL;
    if (ring) {
        torch_trace_patch_time_offset(ring, &ticket, offset);
        torch_trace_patch_duration(ring, &ticket, duration);
    }
    return none();
}

static PyObject *lose_rows(enum recorded table, PyObject *number)
{
    struct ring *ring = recorder_ring(table);
    unsigned long n = PyLong_AsUnsignedLong(number);

    if (PyErr_Occurred())
        return NULL;
    if (ring)
        ring_lose(ring, n);
    return none();
}

/* lose(n): so many rows were not written. */
static PyObject *lose(PyObject *capsule, PyObject *number)
{
    return lose_rows(RECORDED_TORCH_TRACE, number);
}

/* profile_row(ts, run, thread, device, kind, name, duration) */
static PyObject *profile_row(PyObject *capsule, PyObject *const *args, Py_ssize_t n)
{
    struct ring *ring = recorder_ring(RECORDED_TORCH_PROFILE);

    if (n != PROFILE_ROW_ARGUMENTS)
        return PyErr_Format(PyExc_TypeError, "profile_row() takes %d arguments",
                            PROFILE_ROW_ARGUMENTS);
    struct torch_profile_row values = {
        .ts = real_of(args[0]),
        .run = integer_of(args[1]),
        .thread = integer_of(args[2]),
        .device = recorder_text(args[3]),
        .kind = recorder_text(args[4]),
        .name = recorder_text(args[5]),
        .duration = real_of(args[6]),
    };
    if (PyErr_Occurred())
        return NULL;
    if (ring)
        torch_profile_append(ring, &values, NULL);
    return none();
}

/* profile_lose(n): so many rows were not written. */
static PyObject *profile_lose(PyObject *capsule, PyObject *number)
{
    return lose_rows(RECORDED_TORCH_PROFILE, number);
}

/* profile_done(): all rows of a profile are there. */
static PyObject *profile_done(PyObject *capsule, PyObject *nothing)
{
    rings_switch(RECORDED_TORCH_PROFILE, false, 0);
    return none();
}

/* profile_give_up(): it has ended by itself. */
static PyObject *profile_give_up(PyObject *capsule, PyObject *nothing)
{
    recorder_gave_up(RECORDED_TORCH_PROFILE, EIO);
    return none();
}

/* give_up(): it has ended by itself. */
static PyObject *give_up(PyObject *capsule, PyObject *nothing)
{
    recorder_gave_up(RECORDED_TORCH_TRACE, EIO);
    return none();
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wcast-function-type" /* how CPython has it for METH_FASTCALL */
static PyMethodDef definitions[] = {
    {"row", (PyCFunction)row, METH_FASTCALL, NULL},
    {"complete", (PyCFunction)complete, METH_FASTCALL, NULL},
    {"lose", lose, METH_O, NULL},
    {"give_up", give_up, METH_NOARGS, NULL},
    {"profile_row", (PyCFunction)profile_row, METH_FASTCALL, NULL},
    {"profile_lose", profile_lose, METH_O, NULL},
    {"profile_done", profile_done, METH_NOARGS, NULL},
    {"profile_give_up", profile_give_up, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
#pragma GCC diagnostic pop

static PyObject *make_namespace(const struct guest *guest)
{
    _cleanup_unref_ PyObject *probe = guest_module(guest, definitions);
    return probe ? embedded_namespace(sources, probe) : NULL;
}

/* What is recorded by the one namespace of an interpreter that both recorders share. */
struct half {
    enum recorded table, other;
    const char *on, *off; /* its functions */
};

static const struct half trace = {RECORDED_TORCH_TRACE, RECORDED_TORCH_PROFILE, "on", "trace_off"};
static const struct half profile = {RECORDED_TORCH_PROFILE, RECORDED_TORCH_TRACE, "profile",
                                    "profile_off"};

/* on(rate, layers), or profile(steps, 0), in the namespace. Its errno, with its words; -EIO with an
 * exception set. */
static int call_on(PyObject *namespace, const char *name, const struct proto_record *record,
                   char words[PROTO_WORDS_MAX])
{
    PyObject *on = PyDict_GetItemString(namespace, name); /* borrowed */
    _cleanup_unref_ PyObject *said =
        on ? PyObject_CallFunction(on, "dI", record->rate, record->layers) : NULL;
    PyObject *text;
    int error;

    if (!said || !PyArg_ParseTuple(said, "iO", &error, &text))
        return -EIO;
    words_copy(text, words, PROTO_WORDS_MAX);
    return -error;
}

static int half_on(const struct half *half, struct interpreter *interpreter,
                   const struct proto_record *record, char words[PROTO_WORDS_MAX])
{
    PyObject **namespace = recorder_kept(interpreter, half->table);
    PyObject *others = *recorder_kept(interpreter, half->other);
    bool made = !*namespace;

    if (made && others) {
        Py_IncRef(others);
        *namespace = others;
    } else if (made) {
        *namespace = make_namespace(&interpreter->guest);
    }
    if (!*namespace)
        return -EIO;
    int r = call_on(*namespace, half->on, record, words);
    if (r < 0 && made && others)
        python_clear(namespace);
    else if (r < 0 && made)
        embedded_drop(namespace);
    return r;
}

/* A thread that may still be in our code, on a machine where it hardly gets a turn, needs the
 * namespace: the garbage collector has it then, and until it has run the library stays. */
static void half_off(const struct half *half, struct interpreter *interpreter,
                     char words[PROTO_WORDS_MAX])
{
    PyObject **namespace = recorder_kept(interpreter, half->table);
    bool last = !*recorder_kept(interpreter, half->other);
    PyObject *off = PyDict_GetItemString(*namespace, half->off); /* borrowed */
    _cleanup_unref_ PyObject *said = off ? PyObject_CallFunctionObjArgs(off, NULL) : NULL;
    PyObject *text;
    int left = 0;

    if (said && PyArg_ParseTuple(said, "pO", &left, &text))
        words_copy(text, words, PROTO_WORDS_MAX);
    PyErr_Clear();
    if (left && last)
        embedded_drop(namespace);
    else
        python_clear(namespace);
}

static int torch_on(struct interpreter *interpreter, const struct proto_record *record,
                    char words[PROTO_WORDS_MAX])
{
    return half_on(&trace, interpreter, record, words);
}

static void torch_off(struct interpreter *interpreter, char words[PROTO_WORDS_MAX])
{
    half_off(&trace, interpreter, words);
}

static int profile_on(struct interpreter *interpreter, const struct proto_record *record,
                      char words[PROTO_WORDS_MAX])
{
    return half_on(&profile, interpreter, record, words);
}

static void profile_off(struct interpreter *interpreter, char words[PROTO_WORDS_MAX])
{
    half_off(&profile, interpreter, words);
}

const struct recorder torch_trace_recorder = {
    .on = torch_on,
    .off = torch_off,
    .python = true,
    .rate = RATE,
    .rate_max = 1,
};

/* Ends by itself after so many steps. */
const struct recorder torch_profile_recorder = {
    .on = profile_on,
    .off = profile_off,
    .python = true,
    .rate = STEPS,
    .rate_max = STEPS_MAX,
};
