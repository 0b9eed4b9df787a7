/* Waiting for the GIL, and less for it than usual. */
#pragma once

#include "agent/python.h"

/* Attaches a thread state to the calling thread, waiting for the GIL.
 *
 * A thread that runs Python gives it up once somebody has waited for the switch interval, 5 ms. That
 * is read at the beginning of the wait (take_gil in Python/ceval_gil.c), so where `hint` is its address (else
 * 0) it is shortened for that moment. */
void gil_take(PyThreadState *state, uint64_t hint);

/* Sets the interval right again if it is shortened now: the request that waits was given up, or this
 * is a child after fork. Any thread. */
void gil_restore_interval(void);
