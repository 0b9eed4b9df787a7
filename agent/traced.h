/* The trace function of a thread state, of CPython 3.10 and 3.11, where it is said in fields that no function of CPython's shows. */
#pragma once

#include "agent/python.h"

#define TRACED_THREADS_MAX 65536 /* of an interpreter, that are visited */

/* Of CPython's cpython/pystate.h. */
typedef int traced_function(PyObject *object, PyFrameObject *frame, int what, PyObject *arg);

/* Finds out where the fields are. `function` is that of `traced_on`. With the GIL, first on a thread of ours;
 * -EOPNOTSUPP: this is another CPython, or an audit hook forbids it. No exception is set afterwards. */
int traced_bind(traced_function *function);

/* The rest with the GIL. */

extern struct traced {
    size_t word;            /* which word of a thread state its trace function is; 0: not known */
    uint8_t on;             /* what use_tracing is while something is traced: 1, or 255 from 3.11 on */
    traced_function *ours;
} traced;

static inline traced_function **traced_function_of(const PyThreadState *state)
{
    return (traced_function **)state + traced.word;
}
/* Before it come the function of profilers, and the CFrame of the innermost frame, which begins with use_tracing: its lowest byte is
 * all that there is of it. */
static inline uint8_t *traced_use(const PyThreadState *state) { return *((uint8_t **)state + traced.word - 2); }

PyThreadState *traced_first(PyInterpreterState *interpreter);
PyThreadState *traced_next(PyThreadState *state);
/* Whether another one than ours is set. */
static inline bool traced_is_others(const PyThreadState *state)
{
    traced_function *function = *traced_function_of(state);
    return function && function != traced.ours;
}
/* Whether a thread calls ours, and at each line. */
static inline bool traced_is_on(const PyThreadState *state)
{
    return *traced_function_of(state) == traced.ours && *traced_use(state);
}
/* Sets ours, where there is no other one. No audit hook is asked. Outer frames follow as inner ones return. */
void traced_on(PyThreadState *state);
/* Has ours called for exceptions only, until the first one; or takes it out. */
void traced_rest(PyThreadState *state, bool raises);
