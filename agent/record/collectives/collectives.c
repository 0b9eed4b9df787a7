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
#include "agent/cpython/text.h"
#include "agent/interpreter/interpreter.h"
#include "agent/record/recorder.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define PERIOD_NS 100000000u
#define SHAPE_MAX 96
#define RECORDING "probefs collectives"
#define WORKS_BITS 13
#define WORKS_MAX (1u << WORKS_BITS) /* places for results that are waited for at once */
#define WORKS_NEAR 16                /* of these that one may have */
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

/* What find() in collectives.py says of a group, and what it was given for it. */
struct group {
    const PyObject *group;
    PyObject *key;   /* its address, as in recording.groups */
    PyObject *found; /* owns what follows; NULL: nothing */
    struct ring_text name;
    int64_t size, rank;
    PyObject *number, *everybody;
};

/* What recording.dtypes says of a dtype, and as long as that lives. */
struct dtype {
    const PyObject *dtype;
    struct ring_text name;
    int64_t bytes;
};

/* What the functions of recording() share. A collective wakes other threads and waits for them, and
 * then little of what is ours is in the processor's caches: what counts is how much is looked at.
 * So the last group and the last dtype, which mostly come again, are kept as rows have them. */
struct recording {
    PyObject *guest; /* the interpreter's capsule, as all functions of ours hold it (guest.h) */
    PyObject *facts; /* what facts() in collectives.py returns, which owns these: */
    PyObject *find, *groups, *tensor, *parameter, *base, *dtypes;
    struct attribute shape, dtype; /* of a tensor */
    struct group last_group;
    struct dtype last_dtype;
    /* What collectives returned, until it was waited for, and the tickets of their rows: in one of
     * the WORKS_NEAR places from first_place() on. */
    const PyObject *works[WORKS_MAX + WORKS_NEAR];
    struct ticket tickets[WORKS_MAX + WORKS_NEAR];
};

static struct recording *recording_of(PyObject *capsule)
{
    return PyCapsule_GetPointer(capsule, RECORDING);
}

/* Borrowed: the first tensor of what a method was given: a tensor, or a list of them, or one of
 * such lists. NULL: there is none. */
static PyObject *first_tensor(PyObject *args, Py_ssize_t n, const struct recording *recording)
{
    PyObject *one = n > 1 ? PyTuple_GetItem(args, 1) : NULL;

    for (unsigned depth = 0; one && depth < 2 && PyList_CheckExact(one); depth++)
        one = PyList_Size(one) > 0 ? PyList_GetItem(one, 0) : NULL;
    if (!one)
        return NULL;
    const PyObject *class = (PyObject *)Py_TYPE(one);
    return class == recording->tensor || class == recording->parameter ? one : NULL;
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

/* What is known of a dtype; NULL: nothing. */
static const struct dtype *find_dtype(const PyObject *dtype, struct recording *recording)
{
    struct dtype *last = &recording->last_dtype;

    if (dtype == last->dtype)
        return last;
    PyObject *found = PyDict_GetItem(recording->dtypes, (PyObject *)dtype);
    if (!found)
        return NULL;
    *last = (struct dtype){dtype, recorder_text(PyTuple_GetItem(found, 0)),
                           integer_of(PyTuple_GetItem(found, 1))};
    return last;
}

/* Into row: text is where the shape stays. */
static void take_tensor(PyObject *tensor, struct recording *recording, struct collectives_row *row,
                        char text[SHAPE_MAX])
{
    int64_t items = 1;
    size_t size = 0;

    _cleanup_unref_ PyObject *shape = attribute_of(&recording->shape, tensor);
    _cleanup_unref_ PyObject *dtype = attribute_of(&recording->dtype, tensor);
    Py_ssize_t dimensions = shape ? PyTuple_Size(shape) : -1;
    if (dimensions < 0) {
        PyErr_Clear();
        return;
    }
    for (Py_ssize_t i = 0; i < dimensions; i++) {
        int64_t n = integer_of(PyTuple_GetItem(shape, i));
        if (n < 0)
            return;
        items *= n;
        size = add_number(text, size, n);
    }
    row->shape = (struct ring_text){text, size};
    const struct dtype *known = dtype ? find_dtype(dtype, recording) : NULL;
    if (!known)
        return;
    row->dtype = known->name;
    if (known->bytes != RING_NULL_INTEGER)
        row->bytes = items * known->bytes;
}

static void keep_group(const struct group *group, struct group *last)
{
    struct group old = *last;

    *last = *group;
    Py_IncRef(last->key);
    Py_IncRef(last->found);
    Py_DecRef(old.key);
    Py_DecRef(old.found);
}

/* What is known of a group: found is a new reference, NULL: nothing, or with an exception set. */
static struct group find_group(PyObject *group, struct recording *recording)
{
    struct group *last = &recording->last_group;
    PyObject *groups = recording->groups;

    /* one whose address this group has now has been taken out of there */
    if (last->group == group && PyDict_GetItem(groups, last->key) == last->found) {
        Py_IncRef(last->found);
        return *last;
    }
    _cleanup_unref_ PyObject *key = PyLong_FromVoidPtr(group);
    PyObject *found = key ? PyDict_GetItem(groups, key) : NULL; /* borrowed */
    if (found)
        Py_IncRef(found);
    else
        found = PyObject_CallFunctionObjArgs(recording->find, group, NULL);
    if (!key || !found)
        return (struct group){0};
    struct group its = {
        .group = group,
        .key = key,
        .found = found,
        .name = recorder_text(PyTuple_GetItem(found, 0)),
        .size = integer_of(PyTuple_GetItem(found, 1)),
        .rank = integer_of(PyTuple_GetItem(found, 2)),
        .number = PyTuple_GetItem(found, 3),
        .everybody = PyTuple_GetItem(found, 4),
    };
    if (PyDict_GetItem(groups, key) == found)
        keep_group(&its, last);
    return its;
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
    if (number == Py_None)
        return RING_NULL_INTEGER;
    _cleanup_unref_ PyObject *last = PyObject_CallFunctionObjArgs(number, group, NULL);
    if (!last) { /* it has not counted yet */
        PyErr_Clear();
        return RING_NULL_INTEGER;
    }
    int64_t seq = integer_of(last);
    return seq == RING_NULL_INTEGER ? seq : seq + 1;
}

static PyObject *ticket_new(const struct ticket *ticket)
{
    return PyBytes_FromStringAndSize((const char *)ticket, sizeof *ticket);
}

/* What recorded() in collectives.py says of a call: (operation, args). between: it is one between
 * two ranks, which isn't counted. The ticket of the row, None if it was not written. */
static PyObject *begin_row(PyObject *capsule, PyObject *const *args, Py_ssize_t n, bool between)
{
    struct recording *recording = recording_of(capsule);
    struct ticket ticket = {.start = realtime_s()};
    char shape[SHAPE_MAX];

    if (n != BEGIN_ARGUMENTS || !PyTuple_Check(args[1]))
        return PyErr_Format(PyExc_TypeError, "begin(operation, args)");
    Py_ssize_t given = PyTuple_Size(args[1]);
    if (!recorder_ring(RECORDED_COLLECTIVES) || given < 1)
        return none();
    PyObject *group = PyTuple_GetItem(args[1], 0);
    struct group its = find_group(group, recording);
    _cleanup_unref_ PyObject *found = its.found;
    if (!found) {
        PyErr_Clear();
        return none();
    }
    struct collectives_row row = {
        .source = {"recorded", 8},
        .tid = thread_tid(),
        .group_name = its.name,
        .group_size = its.size,
        .group_rank = its.rank,
        .seq = between ? RING_NULL_INTEGER : next_number(its.number, group),
        .start = ticket.start,
        .duration = (double)NAN,
        .op = recorder_text(args[0]),
        .bytes = RING_NULL_INTEGER,
        .peer = RING_NULL_INTEGER,
        .lineno = RING_NULL_INTEGER,
    };
    if (between)
        take_peer(args[1], its.everybody, &row);
    PyObject *tensor = first_tensor(args[1], given, recording);
    if (tensor)
        take_tensor(tensor, recording, &row, shape);
    struct ring *ring = recorder_ring(RECORDED_COLLECTIVES); /* the GIL may have been given up */
    if (!ring || !collectives_append(ring, &row, &ticket.row))
        return none();
    return ticket_new(&ticket);
}

static PyObject *begin(PyObject *capsule, PyObject *const *args, Py_ssize_t n)
{
    return begin_row(capsule, args, n, false);
}

/* The same of a send or recv. */
static PyObject *begin_between(PyObject *capsule, PyObject *const *args, Py_ssize_t n)
{
    return begin_row(capsule, args, n, true);
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

static void end(const struct ticket *ticket)
{
    struct ring *ring = recorder_ring(RECORDED_COLLECTIVES);

    if (ring)
        collectives_patch_duration(ring, &ticket->row, realtime_s() - ticket->start);
}

/* failed(ticket): the call raised. */
static PyObject *failed(PyObject *capsule, PyObject *bytes)
{
    struct ticket ticket;

    if (ticket_of(bytes, &ticket))
        end(&ticket);
    return none();
}

/* The first place that what was returned may have. */
static unsigned first_place(const PyObject *work)
{
    return (unsigned)((uint64_t)(uintptr_t)work * 0x9e3779b97f4a7c15u >> (64 - WORKS_BITS));
}

/* Where it is, or else the place that it is to have: that of the oldest one, if none is free. */
static unsigned place_of(const struct recording *recording, const PyObject *work)
{
    const PyObject *const *works = recording->works;
    unsigned first = first_place(work), place = first;

    for (unsigned i = first; i < first + WORKS_NEAR; i++) {
        if (works[i] == work)
            return i;
        if (works[place] &&
            (!works[i] || recording->tickets[i].start < recording->tickets[place].start))
            place = i;
    }
    return place;
}

/* begun(work, ticket): what the call returned, to be waited for. None: it is over. */
static PyObject *begun(PyObject *capsule, PyObject *const *args, Py_ssize_t n)
{
    struct recording *recording = recording_of(capsule);
    struct ticket ticket;

    if (n != BEGUN_ARGUMENTS)
        return PyErr_Format(PyExc_TypeError, "begun(work, ticket)");
    if (!ticket_of(args[1], &ticket))
        return none();
    if (args[0] == Py_None) {
        end(&ticket);
        return none();
    }
    unsigned place = place_of(recording, args[0]);
    recording->works[place] = args[0];
    recording->tickets[place] = ticket;
    return none();
}

/* waited(args): what Work.wait() was given, which is over now. */
static PyObject *waited(PyObject *capsule, PyObject *args)
{
    struct recording *recording = recording_of(capsule);
    PyObject *work = PyTuple_Check(args) && PyTuple_Size(args) > 0 ? PyTuple_GetItem(args, 0)
                                                                   : NULL;
    unsigned place = work ? place_of(recording, work) : 0;

    if (work && recording->works[place] == work) {
        recording->works[place] = NULL;
        end(&recording->tickets[place]);
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

static void recording_free(struct recording *recording)
{
    PyObject *guest = recording->guest;

    attribute_clear(&recording->shape);
    attribute_clear(&recording->dtype);
    Py_DecRef(recording->last_group.key);
    Py_DecRef(recording->last_group.found);
    Py_DecRef(recording->facts);
    free(recording);
    Py_DecRef(guest); /* last: the library may be unloaded then */
}

static void capsule_freed(PyObject *capsule)
{
    recording_free(PyCapsule_GetPointer(capsule, RECORDING));
}

/* A capsule; NULL: with an exception set. */
static PyObject *recording_new(PyObject *guest, PyObject *facts)
{
    struct recording *recording = calloc(1, sizeof *recording);
    PyObject *capsule = NULL;

    if (!recording)
        return PyErr_NoMemory();
    Py_IncRef(guest);
    recording->guest = guest;
    Py_IncRef(facts);
    recording->facts = facts;
    if (PyArg_ParseTuple(facts, "OOOOOO", &recording->find, &recording->groups, &recording->tensor,
                         &recording->parameter, &recording->base, &recording->dtypes)) {
        if (attribute_find(recording->base, "shape", &recording->shape) &&
            attribute_find(recording->base, "dtype", &recording->dtype))
            capsule = PyCapsule_New(recording, RECORDING, capsule_freed);
        else
            PyErr_Format(PyExc_TypeError, "no shape and dtype of tensors");
    }
    if (!capsule)
        recording_free(recording);
    return capsule;
}

/* recording(facts): a list of what writes rows of calls. */
static PyObject *recording(PyObject *guest, PyObject *facts)
{
    if (!PyTuple_Check(facts))
        return PyErr_Format(PyExc_TypeError, "recording(facts)");
    _cleanup_unref_ PyObject *capsule = recording_new(guest, facts);
    _cleanup_unref_ PyObject *made = capsule ? PyList_New(0) : NULL;
    for (size_t i = 0; made && i < ARRAY_SIZE(calls); i++) {
        _cleanup_unref_ PyObject *function = PyCFunction_NewEx(&calls[i], capsule, NULL);
        if (!function || PyList_Append(made, function) < 0)
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
