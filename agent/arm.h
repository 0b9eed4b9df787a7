/* How an interpreter is made to tell of what code does where breakpoints are: sys.monitoring from 3.12 on (arm.c), a trace
 * function before (arm_trace.c). What they tell of they look up in places.h, and hand on to hit.h.
 *
 * With the GIL of the interpreter. */
#pragma once

#include "agent/places.h"

struct arming {
    /* Makes ready. 0, or -errno, with words or an exception set. */
    int (*begin)(struct interpreter *interpreter, char words[PROTO_WORDS_MAX]);
    /* What is of interest in a code object has changed to `events`, bits of enum place_event; with 0 it may be at its end.
     * What was of interest before, and was said to be no more (DISABLE), is again. -errno as above. */
    int (*code)(struct interpreter *interpreter, PyObject *code, unsigned events);
    /* Whether exceptions are of interest; after all code that has changed in one go. */
    int (*raises)(struct interpreter *interpreter, bool wanted);
    /* Undoes all that; leaves no exception. */
    void (*end)(struct interpreter *interpreter);
    /* What it costs, for people, once something is armed; NULL: nothing to speak of. */
    const char *(*costs)(const struct interpreter *interpreter);
};

extern const struct arming arm_monitoring, arm_trace;
