/* Whether code is the program's own: not of the standard library, nor of an installed one, as its
 * file says. Code of exec() and the like is. */
#pragma once

#include "agent/cpython/python.h"

/* With the GIL; no exception is set before and after. */
bool own_code_is(PyObject *code);
/* Whether it is Python that the agent brings along: the same. */
bool own_code_is_agents(PyObject *code);
/* Whether it is of import itself, importlib._bootstrap, which has import's locks: the same. */
bool own_code_is_import(PyObject *code);
/* The innermost frame of a stack whose code isn't passed over, new; `innermost`, where all are: the
 * same. */
PyFrameObject *own_code_frame(PyFrameObject *innermost, bool (*is_passed_over)(PyObject *code));
