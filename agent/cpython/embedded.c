#include "agent/cpython/embedded.h"

#include <errno.h>
#include <string.h>

const char *embedded_next(const char *part) { return part + strlen(part) + 1; }

static int execute_part(const char *source, const char *name, PyObject *globals)
{
    _cleanup_unref_ PyObject *code = Py_CompileString(source, name, Py_file_input);
    if (!code)
        return -EIO;
    _cleanup_unref_ PyObject *done = PyEval_EvalCode(code, globals, globals);
    return done ? 0 : -EIO;
}

int embedded_execute(const char *parts, const char *name, PyObject *globals)
{
    for (const char *part = parts; *part; part = embedded_next(part))
        if (execute_part(part, name, globals) < 0)
            return -EIO;
    return 0;
}

PyObject *embedded_namespace(const struct embedded *sources, PyObject *probe)
{
    _cleanup_unref_ PyObject *globals = PyDict_New();
    _cleanup_unref_ PyObject *builtins = PyImport_ImportModule("builtins");
    _cleanup_unref_ PyObject *own_name = PyUnicode_FromString("<probefs>");

    if (!globals || !builtins || !own_name ||
        PyDict_SetItemString(globals, "__builtins__", builtins) < 0 ||
        PyDict_SetItemString(globals, "__name__", own_name) < 0 ||
        (probe && PyDict_SetItemString(globals, "_probe", probe) < 0))
        return NULL;
    for (; sources->parts; sources++)
        if (embedded_execute(sources->parts, sources->name, globals) < 0)
            return NULL;
    return steal_pointer(globals);
}

void embedded_drop(PyObject **namespace)
{
    if (*namespace)
        PyDict_Clear(*namespace);
    python_clear(namespace);
}
