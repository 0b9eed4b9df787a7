/* The trace function of a thread state in CPython 3.10 and 3.11. It stands in fields of the state
 * that no function of CPython reads or sets for another thread. */
#pragma once

#include "agent/cpython/python.h"

/* A trace function: Py_tracefunc of CPython's cpython/pystate.h. */
typedef int trace_fields_called(PyObject *object, PyFrameObject *frame, int what, PyObject *arg);

/* Finds the fields. `function` is the one that trace_fields_on() will set. own: this is a thread of
 * ours, as it must be at the first call. With the GIL. -EOPNOTSUPP: it isn't, this is another
 * version of CPython, or an audit hook forbids tracing. No exception is set afterwards. */
int trace_fields_bind(trace_fields_called *function, bool own);

/* All that follows needs the GIL. The state of another thread may be used inside
 * thread_states_each() only. */

extern struct trace_fields {
    size_t word; /* which word of a thread state its trace function is; 0: not known */
    uint8_t on;  /* what use_tracing is while something is traced: 1, or 255 from 3.11 on */
    trace_fields_called *ours;
} trace_fields;

static inline trace_fields_called **trace_fields_function(const PyThreadState *state)
{
    return (trace_fields_called **)state + trace_fields.word;
}
/* use_tracing of a thread. In front of the trace function stand the profile function and a pointer
 * to the CFrame of the innermost frame, whose first byte is use_tracing. */
static inline uint8_t *trace_fields_use(const PyThreadState *state)
{
    return *((uint8_t **)state + trace_fields.word - 2);
}

/* Whether a trace function other than ours is set. */
static inline bool trace_fields_is_others(const PyThreadState *state)
{
    trace_fields_called *function = *trace_fields_function(state);
    return function && function != trace_fields.ours;
}
/* Whether a thread calls our trace function at each line. */
static inline bool trace_fields_is_on(const PyThreadState *state)
{
    return *trace_fields_function(state) == trace_fields.ours && *trace_fields_use(state);
}
/* Sets our trace function, unless another one is set. No audit hook is asked. Frames outside the
 * innermost one are traced once those inside them return. */
void trace_fields_on(PyThreadState *state);
/* raises: has our trace function called for exceptions only, until the first one. Otherwise takes
 * it out. */
void trace_fields_rest(PyThreadState *state, bool raises);
