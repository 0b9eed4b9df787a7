/* What is watched, as objects. */
#include "agent/watched.h"

#include <string.h>

/* What a function of watching.py says of a value; new. NULL: it fails, or there is none. No exception. */
static PyObject *ask(struct interpreter *interpreter, const char *name, PyObject *value)
{
    PyObject *function = value && interpreter->guest.globals
                             ? PyDict_GetItemString(interpreter->guest.globals, name) : NULL; /* borrowed */
    PyObject *said = function ? PyObject_CallFunctionObjArgs(function, value, NULL) : NULL;

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
        value = PyObject_CallMethod(watch->watched, "value", "O", frame ? (PyObject *)frame : Py_None);
    } else if (storage_at(watch->breakpoint->address, watch->breakpoint->length, &there) == 0) {
        uint64_t bytes = 0;
        memcpy(&bytes, (const void *)(uintptr_t)there.memory.address, there.memory.length);
        value = storage_number(interpreter, &there, bytes);
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
    PyObject *value = storage_number(interpreter, &watch->storage, bytes);
    PyErr_Clear();
    return value;
}
