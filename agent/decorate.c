#include "agent/decorate.h"

#include "agent/decorating.h"
#include "agent/source.h"

#define NAME "<probefs>" /* by which it knows that it isn't imported */

static PyObject *load(void)
{
    _cleanup_unref_ PyObject *globals = PyDict_New();
    _cleanup_unref_ PyObject *builtins = PyImport_ImportModule("builtins");
    _cleanup_unref_ PyObject *name = PyUnicode_FromString(NAME);

    if (!globals || !builtins || !name || PyDict_SetItemString(globals, "__builtins__", builtins) < 0 ||
        PyDict_SetItemString(globals, "__name__", name) < 0)
        return NULL;
    if (source_execute(source_probing, "<probefs decorator>", globals) < 0)
        return NULL;
    PyObject *function = PyDict_GetItemString(globals, "_decorate"); /* borrowed */
    Py_IncRef(function);
    return function;
}

PyObject *decorate(struct probing *probing, PyObject *copy, PyObject *function)
{
    _cleanup_unref_ PyObject *decorator = probing->decorate ? probing->decorate : load();

    if (!decorator)
        return NULL;
    if (!probing->decorate)
        probing->decorate = decorator;
    Py_IncRef(decorator);
    return PyObject_CallFunctionObjArgs(decorator, copy, function, NULL);
}
