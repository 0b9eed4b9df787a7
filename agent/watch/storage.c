#include "agent/cpython/look_up.h"
#include "agent/watch/watched.h"

#include "agent/cpython/struct_layout.h"
#include "agent/cpython/text.h"
#include "agent/cpython/thread_states.h"
#include "agent/watch/storage_address.h"
#include "agent/wire/refuse.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

/* Py_buffer (Include/pybuffer.h), which the limited API has from 3.11 on; it was
 * the same before. */
struct buffer {
    void *buf;
    PyObject *obj;
    Py_ssize_t len, itemsize;
    int readonly, ndim;
    char *format;
    Py_ssize_t *shape, *strides, *suboffsets;
    void *internal;
};
#define BUFFER_STRIDED (0x10 | 0x08) /* PyBUF_STRIDES */
#define BUFFER_FORMAT 0x04           /* PyBUF_FORMAT */
#define DIMENSIONS_MAX 64            /* PyBUF_MAX_NDIM */

static struct {
    int (*get)(PyObject *, struct buffer *, int); /* PyObject_GetBuffer */
    void (*release)(struct buffer *);             /* PyBuffer_Release */
} api;

/* ---- what evaluate/watching.py asks ---- */

static PyObject *tuple_of(const Py_ssize_t *numbers, int count)
{
    PyObject *tuple = PyTuple_New(count);

    for (int i = 0; tuple && i < count; i++) {
        PyObject *number = PyLong_FromSsize_t(numbers[i]);
        if (!number || PyTuple_SetItem(tuple, i, number) < 0)
            python_clear(&tuple);
    }
    return tuple;
}

static PyObject *describe(const struct buffer *view)
{
    Py_ssize_t steps[DIMENSIONS_MAX], step = view->itemsize;

    if ((!view->shape && view->ndim) || view->suboffsets || view->ndim > DIMENSIONS_MAX)
        return PyErr_Format(PyExc_BufferError, "its memory isn't in one piece");
    for (int i = view->ndim - 1; i >= 0; step *= view->shape[i--])
        steps[i] = step; /* those of ctypes don't say */
    _cleanup_unref_ PyObject *shape = tuple_of(view->shape, view->ndim);
    _cleanup_unref_ PyObject *strides = tuple_of(view->strides ? view->strides : steps, view->ndim);
    if (!shape || !strides)
        return NULL;
    return Py_BuildValue("KnnsOO", (unsigned long long)(uintptr_t)view->buf, view->len,
                         view->itemsize, view->format ? view->format : "B", shape, strides);
}

/* buffer(object): (address, bytes, bytes of an item, format, shape, strides) of
 * its memory, which is not held. */
static PyObject *buffer(PyObject *capsule, PyObject *object)
{
    struct buffer view;

    if (!api.get || !api.release)
        return PyErr_Format(PyExc_BufferError, "this interpreter shows no buffers");
    if (api.get(object, &view, BUFFER_STRIDED | BUFFER_FORMAT) < 0)
        return NULL;
    PyObject *described = describe(&view);
    api.release(&view);
    return described;
}

/* struct_layout(): tries out the layout of this interpreter on the frames of the caller. */
static PyObject *try_layout(PyObject *capsule, PyObject *none)
{
    return PyBool_FromLong(struct_layout_find() != NULL);
}

/* word(address): the eight bytes there; None: there is no memory. */
static PyObject *word_at(PyObject *capsule, PyObject *address)
{
    uint64_t bytes;
    struct iovec to = {&bytes, sizeof bytes}, from = {0, sizeof bytes};

    from.iov_base = (void *)(uintptr_t)PyLong_AsUnsignedLongLong(address);
    if (PyErr_Occurred())
        return NULL;
    if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) == (ssize_t)sizeof bytes)
        return PyLong_FromUnsignedLongLong(bytes);
    Py_IncRef(Py_None);
    return Py_None;
}

#define SUM_PIECE 8192 /* bytes */

/* Adds the squares of a piece of elements, whose format is as of struct. */
static double squares(const char *piece, size_t size, char format)
{
    double sum = 0;

    for (size_t at = 0; at < size;) {
        double value = 0;
        if (format == 'd') {
            memcpy(&value, piece + at, sizeof value);
            at += sizeof value;
        } else {
            uint32_t bits = 0;
            float single;
            if (format == 'f')
                memcpy(&bits, piece + at, sizeof bits);
            else /* bfloat16: the first half of a float */
                memcpy((char *)&bits + 2, piece + at, 2);
            memcpy(&single, &bits, sizeof single);
            value = (double)single;
            at += format == 'f' ? 4 : 2;
        }
        sum += value * value;
    }
    return sum;
}

/* squares(address, bytes, format): the sum of the squares of the elements there, 'd', 'f' or 'b'
 * for bfloat16; read without the GIL, of what may change or go meanwhile. None: it has gone. */
static PyObject *sum_squares(PyObject *capsule, PyObject *args)
{
    unsigned long long address, size;
    char piece[SUM_PIECE];
    double sum = 0;
    bool there = true;
    const char *format;

    if (!PyArg_ParseTuple(args, "KKs", &address, &size, &format))
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    for (unsigned long long at = 0; there && at < size; at += sizeof piece) {
        size_t some = (size_t)(size - at < sizeof piece ? size - at : sizeof piece);
        struct iovec to = {piece, some}, from = {(void *)(uintptr_t)(address + at), some};
        there = process_vm_readv(getpid(), &to, 1, &from, 1, 0) == (ssize_t)some;
        if (there)
            sum += squares(piece, some, *format);
    }
    PyEval_RestoreThread(state);
    if (there)
        return PyFloat_FromDouble(sum);
    Py_IncRef(Py_None);
    return Py_None;
}

static PyMethodDef word_def = {"word", word_at, METH_O, NULL};
static PyMethodDef squares_def = {"squares", sum_squares, METH_VARARGS, NULL};
static PyMethodDef buffer_def = {"buffer", buffer, METH_O, NULL};
static PyMethodDef layout_def = {"layout", try_layout, METH_NOARGS, NULL};

int storage_add_functions(struct guest *guest)
{
    api.get = (int (*)(PyObject *, struct buffer *, int))looked_up.PyObject_GetBuffer;
    api.release = (void (*)(struct buffer *))looked_up.PyBuffer_Release;
    _cleanup_unref_ PyObject *shown = guest_function(guest, &buffer_def);
    _cleanup_unref_ PyObject *tried = guest_function(guest, &layout_def);
    _cleanup_unref_ PyObject *word = guest_function(guest, &word_def);
    _cleanup_unref_ PyObject *summed = guest_function(guest, &squares_def);
    return shown && tried && word && summed &&
                   PyObject_SetAttrString(guest->probe, "buffer", shown) == 0 &&
                   PyObject_SetAttrString(guest->probe, "word", word) == 0 &&
                   PyObject_SetAttrString(guest->probe, "squares", summed) == 0
               ? PyObject_SetAttrString(guest->probe, "layout", tried)
               : -1;
}

/* ---- finding ---- */

/* A function of evaluate/watching.py; borrowed. */
static PyObject *function(struct interpreter *interpreter, const char *name)
{
    PyObject *found =
        interpreter->guest.globals ? PyDict_GetItemString(interpreter->guest.globals, name) : NULL;
    return found ? found : PyErr_Format(PyExc_RuntimeError, "%s() is gone", name);
}

PyObject *storage_watched(struct interpreter *interpreter, const char *text, PyFrameObject *frame)
{
    PyObject *class = function(interpreter, "Watched");
    return class ? PyObject_CallFunction(class, "sO", text, frame ? (PyObject *)frame : Py_None)
                 : NULL;
}

/* ---- frames ---- */

/* The innermost frame of the thread of a watch; a new reference. NULL: there is none; *has_ended:
 * nor is there the thread. -errno of thread_states.h: it isn't known. */
static int find_innermost(struct interpreter *interpreter, const struct breakpoint *breakpoint,
                          PyObject **innermost, bool *has_ended)
{
    struct thread_seen *all;
    size_t count;

    *innermost = NULL;
    *has_ended = true;
    int r = thread_states_all(interpreter->state, &all, &count);
    if (r < 0)
        return r;
    for (size_t i = 0; i < count; i++)
        if (all[i].id == breakpoint->thread) {
            *has_ended = false;
            Py_IncRef(*innermost = (PyObject *)all[i].frame);
        }
    thread_states_drop(all, count);
    return 0;
}

PyFrameObject *storage_frame(struct interpreter *interpreter, const struct breakpoint *breakpoint,
                             char words[PROTO_WORDS_MAX], int *error)
{
    _cleanup_unref_ PyObject *innermost = NULL;
    PyObject *find = function(interpreter, "frame_of"), *frame = NULL;
    bool has_ended;
    int count = 0;

    *error = find_innermost(interpreter, breakpoint, &innermost, &has_ended);
    if (*error < 0) {
        refuse(-*error, words, "%s", thread_states_words(*error));
        return NULL;
    }
    _cleanup_unref_ PyObject *found =
        find && innermost ? PyObject_CallFunction(find, "OI", innermost, breakpoint->depth) : NULL;
    PyErr_Clear();
    if (!found || found == Py_None) {
        *error =
            refuse(ESRCH, words, "the thread has ended, or runs no Python code of the program now");
        return NULL;
    }
    if (PyArg_ParseTuple(found, "Oi", &frame, &count) && frame != Py_None) {
        Py_IncRef(frame);
        return (PyFrameObject *)frame;
    }
    PyErr_Clear();
    *error = refuse(ENOENT, words, "no frame %u: the thread has %d now", breakpoint->depth, count);
    return NULL;
}

const char *storage_frame_gone(struct interpreter *interpreter, const struct breakpoint *breakpoint,
                               PyObject *watched)
{
    _cleanup_unref_ PyObject *innermost = NULL;
    bool has_ended;

    if (find_innermost(interpreter, breakpoint, &innermost, &has_ended) < 0)
        return NULL;
    if (has_ended)
        return "its thread has ended";
    _cleanup_unref_ PyObject *is =
        PyObject_CallMethod(watched, "is_there", "O", innermost ? innermost : Py_None);
    PyErr_Clear();
    return is == Py_False ? WATCH_RETURNED : NULL;
}

static void take(struct storage *out, enum storage_kind kind, PyObject *owner, PyObject *key,
                 PyObject *format)
{
    Py_IncRef(owner);
    Py_IncRef(key);
    Py_IncRef(format);
    out->kind = kind;
    out->owner = owner;
    out->key = key;
    out->format = format;
}

static int take_memory(PyObject *said, struct storage *out)
{
    unsigned long long address;
    unsigned length;
    const char *kind;
    PyObject *owner, *format;

    if (!PyArg_ParseTuple(said, "sOKIU", &kind, &owner, &address, &length, &format))
        return -EIO;
    take(out, STORAGE_MEMORY, owner, NULL, format);
    bool floating = PyUnicode_CompareWithASCIIString(format, "d") == 0 ||
                    PyUnicode_CompareWithASCIIString(format, "f") == 0;
    bool version = PyUnicode_CompareWithASCIIString(format, "version") == 0;
    out->memory = (struct trap_memory){
        .address = address,
        .length = length,
        .floating = floating,
        .version = version && torch_callers_bind(),
    };
    return 0;
}

/* The dict that an instance keeps its attributes in; new; NULL: there is none. */
static PyObject *dict_of(PyObject *object)
{
    PyObject *dict = PyObject_GetAttrString(object, "__dict__");

    if (dict && !is_exactly(dict, &PyDict_Type))
        python_clear(&dict);
    PyErr_Clear();
    return dict;
}

static void take_dict(PyObject *dict, PyObject *key, bool memory, struct storage *out)
{
    bool watched = python.version >= 0x030c && !memory;

    if (!watched && storage_address_of_dict(dict, key, &out->memory))
        take(out, STORAGE_MEMORY, dict, key, NULL);
    else if (python.version >= 0x030c)
        take(out, STORAGE_DICT, dict, key, NULL);
}

static void take_attribute(PyObject *object, PyObject *name, bool memory, struct storage *out)
{
    if (storage_address_of_instance(object, name, &out->memory)) {
        take(out, STORAGE_MEMORY, object, name, NULL);
        return;
    }
    _cleanup_unref_ PyObject *dict = dict_of(object);
    PyObject *value = dict ? PyDict_GetItemWithError(dict, name) : NULL; /* borrowed */
    PyErr_Clear();
    if (value)
        take_dict(dict, name, memory, out);
}

static int take_said(PyObject *said, bool memory, struct storage *out)
{
    const char *kind;
    PyObject *owner, *key;

    if (PyTuple_Size(said) != 3)
        return take_memory(said, out);
    if (!PyArg_ParseTuple(said, "sOO", &kind, &owner, &key))
        return -EIO;
    if (strcmp(kind, "local") == 0)
        take(out, STORAGE_LOCAL, owner, key, NULL);
    else if (strcmp(kind, "dict") == 0)
        take_dict(owner, key, memory, out);
    else if (strcmp(kind, "attribute") == 0)
        take_attribute(owner, key, memory, out);
    else if (strcmp(kind, "list") == 0 &&
             storage_address_of_list(owner, PyLong_AsSsize_t(key), &out->memory))
        take(out, STORAGE_MEMORY, owner, key, NULL);
    else if (strcmp(kind, "member") == 0 && storage_address_of_member(owner, key, &out->memory))
        take(out, STORAGE_MEMORY, owner, key, NULL);
    return PyErr_Occurred() ? -EIO : 0;
}

int storage_find(struct interpreter *interpreter, PyObject *watched, bool memory,
                 struct storage *out)
{
    *out = (struct storage){0};
    _cleanup_unref_ PyObject *said = PyObject_CallMethod(watched, "find", NULL);
    int r = said ? take_said(said, memory, out) : -EIO;
    if (r < 0)
        storage_clear(out);
    return r;
}

int storage_at(uint64_t address, uint32_t length, struct storage *out)
{
    char bytes[8];
    struct iovec to = {bytes, length}, from = {(void *)(uintptr_t)address, length};

    *out =
        (struct storage){.kind = STORAGE_MEMORY, .memory = {.address = address, .length = length}};
    if ((length != 1 && length != 2 && length != 4 && length != 8) || address % length)
        return -EINVAL;
    return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == (ssize_t)length ? 0 : -EFAULT;
}

void storage_clear(struct storage *storage)
{
    storage->kind = STORAGE_VALUE;
    python_clear(&storage->owner);
    python_clear(&storage->key);
    python_clear(&storage->format);
}

bool storage_is_same(const struct storage *a, const struct storage *b)
{
    if (a->kind != b->kind)
        return false;
    if (a->kind == STORAGE_MEMORY)
        return a->memory.address == b->memory.address && a->memory.length == b->memory.length &&
               a->memory.object == b->memory.object;
    return a->owner == b->owner;
}

/* ---- values ---- */

static PyObject *version(struct interpreter *interpreter, const struct storage *storage,
                         uint64_t bytes, const struct trap_hit *hit)
{
    char operator_name[TORCH_OPERATOR_MAX] = "";
    PyObject *class = function(interpreter, "Version");

    if (hit)
        torch_callers_name(&hit->callers, operator_name);
    PyObject *made = class ? PyObject_CallFunction(class, "OKsi", storage->owner,
                                                   (unsigned long long)bytes, operator_name,
                                                   !hit || trap_is_last(hit))
                           : NULL;
    if (made && hit && !trap_is_last(hit)) /* it has been changed again meanwhile */
        PyObject_SetAttrString(made, "norm", Py_None);
    return made;
}

PyObject *storage_number(struct interpreter *interpreter, const struct storage *storage,
                         uint64_t bytes, const struct trap_hit *hit)
{
    if (storage->memory.version)
        return version(interpreter, storage, bytes, hit);
    PyObject *shown = storage->format ? function(interpreter, "shown") : NULL;

    if (!storage->format)
        return PyLong_FromUnsignedLongLong(bytes);
    return shown ? PyObject_CallFunction(shown, "OKI", storage->format, (unsigned long long)bytes,
                                         storage->memory.length)
                 : NULL;
}

PyObject *storage_object(const struct storage *storage)
{
    const struct trap_memory *memory = &storage->memory;

    if (!memory->object || !trap_is_there(memory))
        return NULL;
    PyObject *object = *(PyObject **)(uintptr_t)memory->address;
    Py_IncRef(object);
    return object;
}

bool storage_is_same_value(struct interpreter *interpreter, PyObject *old_value,
                           PyObject *new_value)
{
    PyObject *same = function(interpreter, "same");

    if (old_value == new_value)
        return true;
    _cleanup_unref_ PyObject *found = same && old_value && new_value
                                          ? PyObject_CallFunction(same, "OO", old_value, new_value)
                                          : NULL;
    PyErr_Clear();
    return found == Py_True;
}

/* ---- values of a watch ---- */

/* What a function of evaluate/watching.py says of a value; new. NULL: it fails, or there is no
 * value. No exception. */
static PyObject *ask(struct interpreter *interpreter, const char *name, PyObject *value)
{
    PyObject *asked = value ? function(interpreter, name) : NULL;
    PyObject *said = asked ? PyObject_CallFunctionObjArgs(asked, value, NULL) : NULL;

    PyErr_Clear();
    return said;
}

PyObject *watch_copy(struct interpreter *interpreter, PyObject *value)
{
    PyObject *copy = ask(interpreter, "copied", value);

    if (!copy)
        Py_IncRef(copy = value);
    return copy;
}

bool watch_is_changeable(struct interpreter *interpreter, PyObject *value)
{
    _cleanup_unref_ PyObject *is = ask(interpreter, "changeable", value);
    return is == Py_True;
}

PyObject *watch_value(struct interpreter *interpreter, struct watch *watch, PyFrameObject *frame)
{
    struct storage there;
    PyObject *value;

    if (watch->watched) {
        value =
            PyObject_CallMethod(watch->watched, "value", "O", frame ? (PyObject *)frame : Py_None);
    } else if (storage_at(watch->breakpoint->address, watch->breakpoint->length, &there) == 0) {
        uint64_t bytes = 0;
        memcpy(&bytes, (const void *)(uintptr_t)there.memory.address, there.memory.length);
        value = storage_number(interpreter, &there, bytes, NULL);
    } else {
        value = NULL;
    }
    PyErr_Clear();
    return value;
}

PyObject *watch_stored(struct interpreter *interpreter, struct watch *watch)
{
    const struct trap_memory *memory = &watch->storage.memory;
    uint64_t bytes = 0;

    if (watch->storage.kind != STORAGE_MEMORY)
        return watch_value(interpreter, watch, NULL);
    if (memory->object)
        return storage_object(&watch->storage);
    memcpy(&bytes, (const void *)(uintptr_t)memory->address, memory->length);
    PyObject *value = storage_number(interpreter, &watch->storage, bytes, NULL);
    PyErr_Clear();
    return value;
}
