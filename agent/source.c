#include "agent/source.h"

#include <errno.h>
#include <string.h>

const char *source_next(const char *part) { return part + strlen(part) + 1; }

static int execute_part(const char *source, const char *name, PyObject *globals)
{
    _cleanup_unref_ PyObject *code = Py_CompileString(source, name, Py_file_input);
    if (!code)
        return -EIO;
    _cleanup_unref_ PyObject *done = PyEval_EvalCode(code, globals, globals);
    return done ? 0 : -EIO;
}

int source_execute(const char *parts, const char *name, PyObject *globals)
{
    for (const char *part = parts; *part; part = source_next(part))
        if (execute_part(part, name, globals) < 0)
            return -EIO;
    return 0;
}
