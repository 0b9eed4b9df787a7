/* What a frame binds, without running any code of the program, and without changing anything of
 * it: f_locals writes into a dict that the program may hold (up to 3.12). */
#pragma once

#include "agent/cpython/python.h"

/* name and value are borrowed. False: it is enough. */
typedef bool variable_visit(void *arg, PyObject *name, PyObject *value);

/* Looks up what this needs. 0 or -EOPNOTSUPP. */
int frame_variables_bind(void);
/* Visits the variables of the frame that the calling thread runs, which runs this code: arguments,
 * variables, cells and free variables (what is in them); of a module or a class the names of its
 * dict. With the GIL; no exception is set before and after. */
void frame_variables(PyFrameObject *frame, PyObject *code, variable_visit *visit, void *arg);
