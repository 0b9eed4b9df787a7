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

extern size_t traced_word; /* which word of a thread state its trace function is; 0: not known */
/* Whether there is one, ours or another. */
static inline bool traced_any(const PyThreadState *state) { return ((void *const *)state)[traced_word]; }
PyThreadState *traced_first(PyInterpreterState *interpreter);
PyThreadState *traced_next(PyThreadState *state);
/* Whether ours is set; whether another one is. */
bool traced_is_on(const PyThreadState *state);
bool traced_is_others(const PyThreadState *state);
/* Sets ours, where there is none; takes it out, where it is there. No audit hook is asked. Outer frames
 * follow as inner ones return. */
void traced_on(PyThreadState *state);
void traced_off(PyThreadState *state);
