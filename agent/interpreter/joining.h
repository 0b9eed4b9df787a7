/* The end of an interpreter. */
#pragma once

#include "agent/cpython/python.h"

/* Called by the interpreter with its GIL, once its threads are joined and before it is
 * taken apart (atexit): lets no request in any more, interrupts the one that runs, and
 * waits for our threads to leave. */
PyObject *joining_at_exit(PyObject *capsule, PyObject *unused);

struct interpreter;
struct guest;

/* Before a thread is held: the interpreter would join it, and never end. Has it let go those that
 * are held before it does (threading). With its GIL; leaves no exception. */
void joining_watch(struct interpreter *interpreter);
/* Undoes it. */
void joining_unwatch(struct guest *guest);
