/* The Python stack of the calling thread as text, where CPython can't be asked: in the handler of
 * SIGTRAP, or in a callback of CPython that must not run code.
 *
 * As faulthandler does, this reads the frames of the calling thread, which don't change meanwhile,
 * and calls no function of CPython but PyCode_Addr2Line(). */
#pragma once

#include "agent/cpython/python.h"
#include "agent/wire/ring_format.h"

struct signal_stack {
    int line;       /* of the innermost frame; 0: none */
    uint16_t start; /* where in `stack` it begins */
    /* of the innermost frame, in `stack`; all 0: no Python */
    uint16_t func, func_size, file, file_size;
    char stack[RING_TEXT_MAX]; /* as in hits.sql; ends at its end */
};

/* Looks up what it calls of CPython and tries out the layout of frames (struct_layout.h). Returns
 * whether stacks can be read. With the GIL, in a thread that runs a Python function. */
bool signal_stack_bind(void);
/* The calling thread's state; NULL: it has none. *gil: whether it holds the GIL. */
PyThreadState *signal_stack_state(bool *gil);
/* Describes the stack of a state. A NULL state has an empty stack. */
void signal_stack_capture(const PyThreadState *state, struct signal_stack *out);
