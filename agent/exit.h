/* The end of an interpreter. */
#pragma once

#include "agent/python.h"

/* Called by the interpreter with its GIL, once its threads are joined and before it is taken apart (atexit): lets no
 * request in any more, interrupts the one that runs, and waits for our threads to leave. */
PyObject *exit_hook(PyObject *capsule, PyObject *unused);
