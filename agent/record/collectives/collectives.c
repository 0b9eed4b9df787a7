/* The collectives of torch.distributed. What finds them is Python (collectives.py, and flight.py
 * those that PyTorch itself has recorded), in a namespace of its own; here is what it writes its
 * rows with, which must not take long.
 *
 * How far each group has come is looked at by Python's thread, ten times a second. */
#include "agent/base/clock.h"
#include "agent/base/thread.h"
#include "agent/collectives_sources.h"
#include "agent/cpython/embedded.h"
#include "agent/cpython/exception_words.h"
#include "agent/interpreter/interpreter.h"
#include "agent/record/recorder.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define PERIOD_NS 100000000u
#define SHAPE_MAX 96
#define BEGIN_ARGUMENTS 2
#define BEGUN_ARGUMENTS 2
#define COUNT_ARGUMENTS 6
#define FLOWN_ARGUMENTS 10

static const struct embedded sources[] = {
    {"<probefs flight>", source_flight},
    {"<probefs collectives>", source_collectives},
    {NULL, NULL},
};

static bool samples; /* the main interpreter is recorded; read without the GIL */
static uint64_t hint;
static int64_t last_flown = -1; /* number of PyTorch's last entry that is a row; under the GIL */

/* What Python keeps of a row. */
struct ticket {
    struct ring_ticket row;
    double start;
};

static PyObject *none(void)
{
    Py_IncRef(Py_None);
    return Py_None;
}

static int64_t integer_of(PyObject *value)
{
    int64_t integer = PyLong_AsLongLong(value);

    if (integer != -1 || !PyErr_Occurred())
        return integer;
    PyErr_Clear();
    return RING_NULL_INTEGER;
}

/* What facts() in collectives.py returns. */
enum fact {
    FACT_FIND,
    FACT_GROUPS,
    FACT_CLASSES,
    FACT_SHAPE,
    FACT_DTYPE,
    FACT_DTYPES,
    FACT_WORKS,
    FACTS
};

/* Borrowed; both: what a function of recording() is made with (guest_function_with()). */
static PyObject *facts_of(PyObject *both) { return PyTuple_GetItem(both, 1); }

/* Borrowed. */
static PyObject *fact(PyObject *facts, enum fact which) { return PyTuple_GetItem(facts, which); }

/* Borrowed: the first tensor of what a method was given: a tensor, or a list of them, or one of
 * such lists. NULL: there is none. */
static PyObject *first_tensor(PyObject *args, PyObject *facts)
{
    PyObject *classes = fact(facts, FACT_CLASSES);
    PyObject *one = PyTuple_Size(args) > 1 ? PyTuple_GetItem(args, 1) : NULL;

    for (unsigned depth = 0; one && depth < 2 && PyList_CheckExact(one); depth++)
        one = PyList_Size(one) > 0 ? PyList_GetItem(one, 0) : NULL;
    for (Py_ssize_t i = 0; one && i < PyTuple_Size(classes); i++)
        if ((PyObject *)Py_TYPE(one) == PyTuple_GetItem(classes, i))
            return one;
    return NULL;
}

/* Adds a number that isn't negative, behind ", " where it isn't the first one; what has no room is
 * left out. Returns the new size. printf() would take several times as long. */
static size_t add_number(char text[SHAPE_MAX], size_t size, int64_t number)
{
    char digits[24];
    size_t n = 0;

    do
        digits[n++] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    if (size + 2 + n > SHAPE_MAX)
        return size;
    if (size) {
        text[size++] = ',';
        text[size++] = ' ';
    }
    while (n)
        text[size++] = digits[--n];
    return size;
}

/* Into row: text is where the shape stays. */
static void take_tensor(PyObject *tensor, PyObject *facts, struct collectives_row *row,
                        char text[SHAPE_MAX])
{
    int64_t items = 1;
    size_t size = 0;

    _cleanup_unref_ PyObject *shape = PyObject_GetAttr(tensor, fact(facts, FACT_SHAPE));
    _cleanup_unref_ PyObject *dtype = PyObject_GetAttr(tensor, fact(facts, FACT_DTYPE));
    PyObject *type = dtype ? PyDict_GetItem(fact(facts, FACT_DTYPES), dtype) : NULL;
    if (!shape || !PyTuple_Check(shape))
        return;
    for (Py_ssize_t i = 0; i < PyTuple_Size(shape); i++) {
        int64_t n = integer_of(PyTuple_GetItem(shape, i));
        if (n < 0)
            return;
        items *= n;
        size = add_number(text, size, n);
    }
    row->shape = (struct ring_text){text, size};
    if (!type)
        return;
    row->dtype = recorder_text(PyTuple_GetItem(type, 0));
    int64_t bytes = integer_of(PyTuple_GetItem(type, 1));
    if (bytes != RING_NULL_INTEGER)
        row->bytes = items * bytes;
}

/* What find() in collectives.py says of a group, a new reference; NULL: nothing. */
static PyObject *find_group(PyObject *group, PyObject *facts)
{
    _cleanup_unref_ PyObject *address = PyLong_FromVoidPtr(group);
    PyObject *found = address ? PyDict_GetItem(fact(facts, FACT_GROUPS), address) : NULL;

    if (found) {
        Py_IncRef(found);
        return found;
    }
    return PyObject_CallFunctionObjArgs(fact(facts, FACT_FIND), group, NULL);
}

/* The numbers among all of a send or recv, whose second argument is that in the group. */
static void take_peer(PyObject *args, PyObject *everybody, struct collectives_row *row)
{
    int64_t peer = PyTuple_Size(args) > 2 ? integer_of(PyTuple_GetItem(args, 2)) : -1;

    if (peer >= 0 && peer < PyList_Size(everybody))
        row->peer = integer_of(PyList_GetItem(everybody, peer));
}

/* The one that begins now is the next one. */
static int64_t next_number(PyObject *number, PyObject *group)
{
    _cleanup_unref_ PyObject *last =
        number == Py_None ? NULL : PyObject_CallFunctionObjArgs(number, group, NULL);
    int64_t seq = last ? integer_of(last) : RING_NULL_INTEGER;

    PyErr_Clear();
    return seq == RING_NULL_INTEGER ? seq : seq + 1;
}

static PyObject *ticket_new(const struct ticket *ticket)
{
    return PyBytes_FromStringAndSize((const char *)ticket, sizeof *ticket);
}

/* What recorded() in collectives.py says of a call: (operation, args). between: it is one between
 * two ranks, which isn't counted. The ticket of the row, None if it was not written. */
static PyObject *begin_row(PyObject *facts, PyObject *const *args, Py_ssize_t n, bool between)
{
    struct ticket ticket = {.start = realtime_s()};
    char shape[SHAPE_MAX];

    if (n != BEGIN_ARGUMENTS || !PyTuple_Check(args[1]))
        return PyErr_Format(PyExc_TypeError, "begin(operation, args)");
    if (!recorder_ring(RECORDED_COLLECTIVES) || PyTuple_Size(args[1]) < 1)
        return none();
    PyObject *group = PyTuple_GetItem(args[1], 0);
    _cleanup_unref_ PyObject *its = find_group(group, facts);
    if (!its) {
        PyErr_Clear();
        return none();
    }
    struct collectives_row row = {
        .source = {"recorded", 8},
        .tid = thread_tid(),
        .group_name = recorder_text(PyTuple_GetItem(its, 0)),
        .group_size = integer_of(PyTuple_GetItem(its, 1)),
        .group_rank = integer_of(PyTuple_GetItem(its, 2)),
        .seq = between ? RING_NULL_INTEGER : next_number(PyTuple_GetItem(its, 3), group),
        .start = ticket.start,
        .duration = (double)NAN,
        .op = recorder_text(args[0]),
        .bytes = RING_NULL_INTEGER,
        .peer = RING_NULL_INTEGER,
        .lineno = RING_NULL_INTEGER,
    };
    if (between)
        take_peer(args[1], PyTuple_GetItem(its, 4), &row);
    PyObject *tensor = first_tensor(args[1], facts);
    if (tensor)
        take_tensor(tensor, facts, &row, shape);
    PyErr_Clear();
    struct ring *ring = recorder_ring(RECORDED_COLLECTIVES); /* the GIL may have been given up */
    if (!ring || !collectives_append(ring, &row, &ticket.row))
        return none();
    return ticket_new(&ticket);
}

static PyObject *begin(PyObject *both, PyObject *const *args, Py_ssize_t n)
{
    return begin_row(facts_of(both), args, n, false);
}

/* The same of a send or recv. */
static PyObject *begin_between(PyObject *both, PyObject *const *args, Py_ssize_t n)
{
    return begin_row(facts_of(both), args, n, true);
}

static bool ticket_of(PyObject *bytes, struct ticket *out)
{
    if (PyBytes_Size(bytes) != sizeof *out) {
        PyErr_Clear();
        return false;
    }
    memcpy(out, PyBytes_AsString(bytes), sizeof *out);
    return true;
}

static void end(PyObject *bytes)
{
    struct ring *ring = recorder_ring(RECORDED_COLLECTIVES);
    struct ticket ticket;

    if (ring && ticket_of(bytes, &ticket))
        collectives_patch_duration(ring, &ticket.row, realtime_s() - ticket.start);
}

/* failed(ticket): the call raised. */
static PyObject *failed(PyObject *both, PyObject *bytes)
{
    end(bytes);
    return none();
}

/* begun(work, ticket): what the call returned, to be waited for. None: it is over. */
static PyObject *begun(PyObject *both, PyObject *const *args, Py_ssize_t n)
{
    if (n != BEGUN_ARGUMENTS)
        return PyErr_Format(PyExc_TypeError, "begun(work, ticket)");
    if (args[0] == Py_None) {
        end(args[1]);
        return none();
    }
    _cleanup_unref_ PyObject *address = PyLong_FromVoidPtr(args[0]);
    if (!address || PyDict_SetItem(fact(facts_of(both), FACT_WORKS), address, args[1]) < 0)
        PyErr_Clear();
    return none();
}

/* waited(args): what Work.wait() was given, which is over now. */
static PyObject *waited(PyObject *both, PyObject *args)
{
    if (!PyTuple_Check(args) || PyTuple_Size(args) < 1)
        return none();
    PyObject *works = fact(facts_of(both), FACT_WORKS);
    _cleanup_unref_ PyObject *address = PyLong_FromVoidPtr(PyTuple_GetItem(args, 0));
    PyObject *ticket = address ? PyDict_GetItem(works, address) : NULL; /* borrowed */
    if (ticket) {
        end(ticket);
        if (PyDict_DelItem(works, address) < 0)
            PyErr_Clear();
    }
    return none();
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wcast-function-type" /* how CPython has it for METH_FASTCALL */
static PyMethodDef calls[] = {
    {"begin", (PyCFunction)begin, METH_FASTCALL, NULL},
    {"begin_between", (PyCFunction)begin_between, METH_FASTCALL, NULL},
    {"begun", (PyCFunction)begun, METH_FASTCALL, NULL},
    {"failed", failed, METH_O, NULL},
    {"waited", waited, METH_O, NULL},
};
#pragma GCC diagnostic pop

/* recording(facts): what writes rows of calls, by name. */
static PyObject *recording(PyObject *capsule, PyObject *facts)
{
    const struct guest *guest = &guest_owner(capsule)->guest;

    if (!PyTuple_Check(facts) || PyTuple_Size(facts) != FACTS)
        return PyErr_Format(PyExc_TypeError, "recording(facts)");
    _cleanup_unref_ PyObject *made = PyDict_New();
    for (size_t i = 0; made && i < sizeof calls / sizeof *calls; i++) {
        _cleanup_unref_ PyObject *function = guest_function_with(guest, &calls[i], facts);
        if (!function || PyDict_SetItemString(made, calls[i].ml_name, function) < 0)
            return NULL;
    }
    return steal_pointer(made);
}

/* count(ticket, name, size, rank, seq, since): the row of a group, by its ticket or None; since:
 * how long it has been that number, None: it just became that. (ticket, since). */
static PyObject *count(PyObject *capsule, PyObject *const *args, Py_ssize_t n)
{
    struct ring *ring = recorder_ring(RECORDED_COLLECTIVES);
    struct ticket ticket = {.start = realtime_s()};

    if (n != COUNT_ARGUMENTS)
        return PyErr_Format(PyExc_TypeError, "count(ticket, name, size, rank, seq, since)");
    if (!ring)
        return Py_BuildValue("(OO)", Py_None, Py_None);
    struct collectives_row row = {
        .source = {"counter", 7},
        .tid = RING_NULL_INTEGER,
        .group_name = recorder_text(args[1]),
        .group_size = integer_of(args[2]),
        .group_rank = integer_of(args[3]),
        .seq = integer_of(args[4]),
        .start = args[5] == Py_None ? ticket.start : PyFloat_AsDouble(args[5]),
        .duration = (double)NAN,
        .bytes = RING_NULL_INTEGER,
        .peer = RING_NULL_INTEGER,
        .lineno = RING_NULL_INTEGER,
    };
    if (args[0] == Py_None || !ticket_of(args[0], &ticket) ||
        !collectives_patch_seq_start(ring, &ticket.row, row.seq, row.start))
        if (!collectives_append(ring, &row, &ticket.row))
            return Py_BuildValue("(OO)", Py_None, Py_None);
    _cleanup_unref_ PyObject *bytes = ticket_new(&ticket);
    return bytes ? Py_BuildValue("(Od)", bytes, row.start) : NULL;
}

/* last_flown(): the number of the last one that flown() wrote, -1: none. */
static PyObject *tell_last_flown(PyObject *capsule, PyObject *nothing)
{
    return PyLong_FromLongLong(last_flown);
}

/* flown(number, group, seq, start, duration, op, shape, dtype, bytes, state): a row of what PyTorch
 * has recorded. Whether rows can be written. */
static PyObject *flown(PyObject *capsule, PyObject *const *args, Py_ssize_t n)
{
    struct ring *ring = recorder_ring(RECORDED_COLLECTIVES);

    if (n != FLOWN_ARGUMENTS)
        return PyErr_Format(PyExc_TypeError, "flown() takes %d arguments", FLOWN_ARGUMENTS);
    if (!ring)
        return PyBool_FromLong(false);
    struct collectives_row row = {
        .source = {"torch", 5},
        .tid = RING_NULL_INTEGER,
        .group_name = recorder_text(args[1]),
        .group_size = RING_NULL_INTEGER,
        .group_rank = RING_NULL_INTEGER,
        .seq = integer_of(args[2]),
        .start = PyFloat_AsDouble(args[3]),
        .duration = args[4] == Py_None ? (double)NAN : PyFloat_AsDouble(args[4]),
        .op = recorder_text(args[5]),
        .shape = recorder_text(args[6]),
        .dtype = recorder_text(args[7]),
        .bytes = integer_of(args[8]),
        .peer = RING_NULL_INTEGER,
        .lineno = RING_NULL_INTEGER,
        .state = recorder_text(args[9]),
    };
    int64_t number = PyLong_AsLongLong(args[0]);
    if (PyErr_Occurred())
        return NULL;
    collectives_append(ring, &row, NULL);
    last_flown = number;
    return PyBool_FromLong(true);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wcast-function-type" /* how CPython has it for METH_FASTCALL */
static PyMethodDef definitions[] = {
    {"recording", recording, METH_O, NULL},
    {"count", (PyCFunction)count, METH_FASTCALL, NULL},
    {"last_flown", tell_last_flown, METH_NOARGS, NULL},
    {"flown", (PyCFunction)flown, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
#pragma GCC diagnostic pop

static PyObject *make_namespace(const struct guest *guest)
{
    _cleanup_unref_ PyObject *probe = guest_module(guest, definitions);
    return probe ? embedded_namespace(sources, probe) : NULL;
}

static PyObject *call(PyObject *namespace, const char *name)
{
    PyObject *function = PyDict_GetItemString(namespace, name); /* borrowed */
    return function ? PyObject_CallObject(function, NULL) : NULL;
}

static int collectives_on(struct interpreter *interpreter, const struct proto_record *record,
                          char words[PROTO_WORDS_MAX])
{
    PyObject **namespace = recorder_kept(interpreter, RECORDED_COLLECTIVES);
    bool made = !*namespace;
    PyObject *text;
    int error;

    if (made)
        *namespace = make_namespace(&interpreter->guest);
    if (!*namespace)
        return -EIO;
    _cleanup_unref_ PyObject *said = call(*namespace, "on");
    if (!said || !PyArg_ParseTuple(said, "iO", &error, &text))
        error = EIO;
    else
        words_copy(text, words, PROTO_WORDS_MAX);
    if (error && made)
        embedded_drop(namespace);
    if (!error && interpreter_is_main(interpreter)) {
        hint = record->gil_interval;
        __atomic_store_n(&samples, true, __ATOMIC_RELEASE);
    }
    return -error;
}

/* A thread may wait in what stood in for a method: it finds nothing of ours when it goes on. */
static void collectives_off(struct interpreter *interpreter, char words[PROTO_WORDS_MAX])
{
    PyObject **namespace = recorder_kept(interpreter, RECORDED_COLLECTIVES);

    if (interpreter_is_main(interpreter))
        __atomic_store_n(&samples, false, __ATOMIC_RELEASE);
    Py_XDECREF(call(*namespace, "off"));
    PyErr_Clear();
    embedded_drop(namespace);
}

static void collectives_forget(void)
{
    samples = false;
    last_flown = -1;
}

/* Writes down how many collectives have begun in each group, if that is recorded: only then this
 * takes the GIL. */
static uint64_t look(void)
{
    struct interpreter *entered;

    if (!__atomic_load_n(&samples, __ATOMIC_ACQUIRE) || !recorder_ring(RECORDED_COLLECTIVES))
        return 0;
    if (interpreter_enter(interpreter_main()->id, hint, &entered) < 0)
        return 0;
    PyObject *namespace = *recorder_kept(entered, RECORDED_COLLECTIVES);
    if (namespace && interpreter_is_main(entered)) {
        Py_XDECREF(call(namespace, "sample"));
        PyErr_Clear();
    }
    interpreter_leave(entered);
    return PERIOD_NS;
}

const struct recorder collectives_recorder = {
    .on = collectives_on,
    .off = collectives_off,
    .forget = collectives_forget,
    .look = look,
    .python = true,
};
