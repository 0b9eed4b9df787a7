/* Taking the GIL, with a shorter wait than CPython grants. */
#pragma once

#include "agent/cpython/python.h"

/* Waits for the GIL and attaches a thread state to the calling thread.
 *
 * A thread that runs Python gives up the GIL once another one has waited for the switch interval,
 * 5 ms. CPython reads the interval when a wait begins (take_gil in Python/ceval_gil.c). `hint` is
 * the interval's address, by which it is shortened for that moment; 0: it isn't known, and the
 * wait takes as long as usual; GIL_USUAL: it is looked up, and shortened if it is what it usually
 * is. */
#define GIL_USUAL 1u
void gil_take(PyThreadState *state, uint64_t hint);

/* Restores the switch interval, if gil_take() has shortened it: the request that waits was given
 * up, or this is a child after fork. Any thread. */
void gil_restore_interval(void);
