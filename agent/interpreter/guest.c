#include "agent/interpreter/guest.h"

#include "agent/cpython/embedded.h"
#include "agent/cpython/look_up.h"
#include "agent/interpreter/interpreter.h"
#include "agent/interpreter/joining.h"
#include "agent/interpreter/part.h"
#include "agent/sources.h"

#include <errno.h>

#define CAPSULE "probefs agent"
#define RECURSION_ROOM 200

static void capsule_freed(PyObject *capsule)
{
    struct interpreter *interpreter = PyCapsule_GetPointer(capsule, CAPSULE);
    if (interpreter)
        __atomic_sub_fetch(&interpreter->guest.capsules, 1, __ATOMIC_RELEASE);
    else
        PyErr_Clear();
}

PyObject *guest_function_with(const struct guest *guest, PyMethodDef *definition, PyObject *more)
{
    _cleanup_unref_ PyObject *both = PyTuple_Pack(2, guest->capsule, more);
    return both ? PyCFunction_NewEx(definition, both, NULL) : NULL;
}

struct interpreter *guest_owner(PyObject *capsule)
{
    return PyCapsule_GetPointer(capsule, CAPSULE);
}

PyObject *guest_function(const struct guest *guest, PyMethodDef *definition)
{
    return PyCFunction_NewEx(definition, guest->capsule, NULL);
}

PyObject *guest_module(const struct guest *guest, PyMethodDef *definitions)
{
    _cleanup_unref_ PyObject *module = PyModule_New("_probe");
    _cleanup_unref_ PyObject *safe = PyObject_GetAttrString(guest->probe, "frames_are_safe");

    if (!module || !safe || PyObject_SetAttrString(module, "frames_are_safe", safe) < 0)
        return NULL;
    for (PyMethodDef *definition = definitions; definition->ml_name; definition++) {
        _cleanup_unref_ PyObject *function = guest_function(guest, definition);
        if (!function || PyObject_SetAttrString(module, definition->ml_name, function) < 0)
            return NULL;
    }
    return steal_pointer(module);
}

/* write_local(frame, name, value): assigns a local variable of a frame, where writing through its
 * f_locals doesn't (3.12 and before). All in one go under the GIL: PyFrame_LocalsToFast() writes
 * every variable back, so nothing may run between it and f_locals. */
static PyObject *write_local(PyObject *self, PyObject *args)
{
    PyObject *frame, *name, *value;

    if (!PyArg_ParseTuple(args, "OUO", &frame, &name, &value))
        return NULL;
    if (!python.locals_to_fast)
        return PyErr_Format(PyExc_NotImplementedError, "this interpreter needs no write_local");
    _cleanup_unref_ PyObject *locals = PyObject_GetAttrString(frame, "f_locals");
    if (!locals)
        return NULL;
    /* the old value's end may run anything: not before this is done */
    _cleanup_unref_ PyObject *old = PyObject_GetItem(locals, name);
    if (!old)
        PyErr_Clear();
    if (PyObject_SetItem(locals, name, value) < 0)
        return NULL;
    python.locals_to_fast(frame, 0);
    Py_IncRef(Py_None);
    return Py_None;
}

/* frames_are_safe(): whether sys._current_frames() may be called, and what it returns be looked at.
 * In 3.12 and 3.13 it also makes frame objects of interpreters whose GIL is another one
 * (Python/pystate.c: _PyThread_CurrentFrames). Without a GIL frames go on while they are looked
 * at. */
static PyObject *frames_are_safe(PyObject *self, PyObject *none)
{
    return PyBool_FromLong(
        !python.free_threaded &&
        (interpreter_is_alone() || python.version < 0x030c || python.version > 0x030d));
}

static PyMethodDef write_local_def = {"write_local", write_local, METH_VARARGS, NULL};
static PyMethodDef safe_def = {"frames_are_safe", frames_are_safe, METH_NOARGS, NULL};
static PyMethodDef hook_def = {"probefs_agent_exit", joining_at_exit, METH_NOARGS, NULL};

/* The Python of evaluate/, executed in this order; the names tell our own frames from others
 * (evaluate/errors.py). */
static const struct embedded evaluate_sources[] = {
    {"<probefs output>", source_output},
    {"<probefs names>", source_names},
    {"<probefs units>", source_units},
    {"<probefs values>", source_values},
    {"<probefs coroutines>", source_coroutines},
    {"<probefs statements>", source_statements},
    {"<probefs errors>", source_errors},
    {"<probefs evaluate>", source_evaluate},
    {NULL, NULL},
};
static const struct embedded thread_sources[] = {
    {"<probefs threads>", source_threads},
    {NULL, NULL},
};

/* The text of evaluate/stream.py, which evaluate/output.py executes in a namespace of
 * its own, as a list of parts. */
static PyObject *stream_parts(void)
{
    _cleanup_unref_ PyObject *list = PyList_New(0);

    for (const char *part = source_stream; list && *part; part = embedded_next(part)) {
        _cleanup_unref_ PyObject *text = PyUnicode_FromString(part);
        if (!text || PyList_Append(list, text) < 0)
            return NULL;
    }
    return steal_pointer(list);
}

static int add_attribute(PyObject *object, const char *name, PyObject *value)
{
    return value ? PyObject_SetAttrString(object, name, value) : -1;
}

/* Says which thread is the main one. */
static int note_main_thread(struct guest *guest)
{
    PyObject *find = PyDict_GetItemString(guest->threads, "main_ident"); /* borrowed */
    if (!find)
        return -EIO;
    _cleanup_unref_ PyObject *ident = PyObject_CallFunctionObjArgs(find, NULL);
    guest->pid = getpid();
    return add_attribute(guest->probe, "main_thread", ident) < 0 ? -EIO : 0;
}

/* A type of CPython's own. */
static int add_type(PyObject *module, const char *name, PyObject *type)
{
    return type ? PyObject_SetAttrString(module, name, type) : -1;
}

/* The module that evaluate/ knows as _probe. */
static int make_probe(struct guest *guest)
{
    _cleanup_unref_ PyObject *write = guest_function(guest, &write_local_def);
    _cleanup_unref_ PyObject *safe = guest_function(guest, &safe_def);
    _cleanup_unref_ PyObject *stream = stream_parts();
    guest->probe = PyModule_New("_probe");
    if (!guest->probe || add_attribute(guest->probe, "write_local", write) < 0 ||
        add_attribute(guest->probe, "frames_are_safe", safe) < 0 ||
        add_type(guest->probe, "Context", looked_up.PyContext_Type) < 0 ||
        add_type(guest->probe, "ContextVar", looked_up.PyContextVar_Type) < 0 ||
        add_attribute(guest->probe, "stream_source", stream) < 0 || parts_lend(guest) < 0)
        return -EIO;
    return 0;
}

/* Has the interpreter call joining_at_exit() at its end. */
static int register_hook(struct guest *guest)
{
    guest->hook = guest_function(guest, &hook_def);
    _cleanup_unref_ PyObject *atexit = PyImport_ImportModule("atexit");
    if (!guest->hook || !atexit)
        return -EIO;
    _cleanup_unref_ PyObject *done = PyObject_CallMethod(atexit, "register", "O", guest->hook);
    return done ? 0 : -EIO;
}

static int begin(struct guest *guest, struct interpreter *interpreter)
{
    guest->capsule = PyCapsule_New(interpreter, CAPSULE, capsule_freed);
    if (!guest->capsule)
        return -EIO;
    __atomic_add_fetch(&guest->capsules, 1, __ATOMIC_RELAXED);
    if (register_hook(guest) < 0)
        return -EIO;
    if (!python.free_threaded) /* what they do there is kept in order by a GIL */
        parts_install();
    return 0;
}

static int make(struct guest *guest, struct interpreter *interpreter)
{
    if (!guest->capsule && begin(guest, interpreter) < 0)
        return -EIO;
    if (make_probe(guest) < 0)
        return -EIO;
    guest->threads = embedded_namespace(thread_sources, guest->probe);
    if (!guest->threads || note_main_thread(guest) < 0)
        return -EIO;
    guest->globals = embedded_namespace(evaluate_sources, guest->probe);
    if (!guest->globals)
        return -EIO;
    return python.free_threaded
               ? embedded_execute(source_striking, "<probefs striking>", guest->globals)
               : 0;
}

void guest_begin(struct guest *guest, struct interpreter *interpreter)
{
    if (!guest->capsule && begin(guest, interpreter) < 0)
        guest_drop(guest);
}

int guest_make(struct guest *guest, struct interpreter *interpreter)
{
    PyObject *type, *value, *traceback;

    if (guest->globals)
        return guest->pid == getpid() ? 0 : note_main_thread(guest);
    int limit = Py_GetRecursionLimit(); /* the program's may be too low for what is imported */
    if (limit < RECURSION_ROOM)
        Py_SetRecursionLimit(RECURSION_ROOM);
    int r = make(guest, interpreter);
    if (limit < RECURSION_ROOM)
        Py_SetRecursionLimit(limit);
    if (r < 0) {
        PyErr_Fetch(&type, &value, &traceback);
        guest_drop(guest);
        PyErr_Restore(type, value, traceback);
    }
    return r;
}

/* Adds a file that few programs need, unless what it defines last is there. */
static int add_rare(struct guest *guest, const char *defined, const char *source, const char *name)
{
    return PyDict_GetItemString(guest->globals, defined)
               ? 0
               : embedded_execute(source, name, guest->globals);
}

int guest_watching(struct guest *guest)
{
    return add_rare(guest, "Watched", source_watching, "<probefs watching>");
}

int guest_tree(struct guest *guest)
{
    return add_rare(guest, "quoted", source_tree, "<probefs tree>");
}

static void unregister_hook(PyObject *hook)
{
    _cleanup_unref_ PyObject *atexit = PyImport_ImportModule("atexit");
    if (atexit)
        Py_DecRef(PyObject_CallMethod(atexit, "unregister", "O", hook));
    PyErr_Clear();
}

void guest_drop(struct guest *guest)
{
    PyObject *close = guest->globals ? PyDict_GetItemString(guest->globals, "close") : NULL;

    if (close)
        Py_DecRef(PyObject_CallFunctionObjArgs(close, NULL));
    PyErr_Clear();
    if (guest->hook)
        unregister_hook(guest->hook);
    joining_unwatch(guest);
    parts_uninstall();
    embedded_drop(&guest->globals);
    embedded_drop(&guest->threads);
    python_clear(&guest->probe);
    python_clear(&guest->hook);
    python_clear(&guest->capsule);
    PyErr_Clear();
}
