/* Who writes: the Python code that a thread runs, as text, where CPython can't be asked: in the handler of SIGTRAP, or in a
 * callback of CPython's that must not run code.
 *
 * As faulthandler does, it reads what the thread itself is running, which stays as it is meanwhile, and calls nothing but
 * PyCode_Addr2Line(). */
#pragma once

#include "agent/python.h"
#include "agent/ring.h"

struct writer {
    int line;                 /* of the innermost frame; 0: none */
    uint16_t start;           /* where in `stack` it begins */
    uint16_t func, func_size, file, file_size; /* of the innermost frame, in `stack`; all 0: no Python */
    char stack[RING_TEXT_MAX]; /* as in hits.sql; ends at its end */
};

/* Finds the functions of CPython's that this needs, and tries it out (layout.h). Whether it works. With the GIL, in a thread
 * that runs a function of Python. */
bool writer_bind(void);
/* The calling thread's own state; NULL: it has none. *gil: it holds the GIL. */
PyThreadState *writer_state(bool *gil);
/* Describes what it runs; NULL: nothing. */
void writer_capture(const PyThreadState *state, struct writer *out);
