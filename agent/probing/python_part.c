#include "agent/probing/python_part.h"

#include "agent/cpython/embedded.h"
#include "agent/decorating.h"

PyObject *python_part(struct probing *probing, const char *name)
{
    static const struct embedded sources[] = {{"<probefs decorator>", source_probing},
                                              {NULL, NULL}};
    _cleanup_unref_ PyObject *globals = probing->python;

    if (!globals)
        globals = embedded_namespace(sources, NULL);
    if (!globals)
        return NULL;
    if (!probing->python)
        probing->python = globals;
    Py_IncRef(globals);
    PyObject *part = PyDict_GetItemString(globals, name); /* borrowed */
    Py_IncRef(part);
    return part;
}

static bool is_offered(PyObject *name)
{
    static const char *const names[] = {"step",       "set_role", "table",       "attach_on_error",
                                        "breakpoint", "Debugger", "_post_mortem"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, names[i]) == 0)
            return true;
    return false;
}

/* Gives the module a function of Python, which writes events by the module that it is an attribute
 * of. */
static int give(struct probing *probing, PyObject *name, PyObject *function)
{
    _cleanup_unref_ PyObject *module = probing_module(probing);

    if (!module || PyDict_SetItemString(probing->python, "_probefs_agent", module) < 0)
        return -1;
    return PyObject_SetAttr(module, name, function);
}

PyObject *python_part_attribute(PyObject *capsule, PyObject *name)
{
    struct probing *probing = probing_of(capsule);

    if (!probing)
        return NULL;
    if (!is_offered(name))
        return PyErr_Format(PyExc_AttributeError, "module 'probing' has no attribute %R", name);
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    _cleanup_unref_ PyObject *function = text ? python_part(probing, text) : NULL;
    if (!function || give(probing, name, function) < 0)
        return NULL;
    Py_IncRef(function);
    return function;
}
