/* The thread states of an interpreter, those of other threads among them.
 *
 * The GIL alone doesn't keep them as they are. A thread of C's links a new one, and unlinks and
 * frees an old one, without it (PyThreadState_New() and PyThreadState_Delete() want no GIL); and
 * PyInterpreterState_ThreadHead() and PyThreadState_Next() take no lock. In CPython 3.11 a new one
 * is linked before it is made: new_threadstate() of Python/pystate.c sets `interp->threads.head`,
 * and only then calls init_threadstate(), which asks the kernel for the thread's number and sets
 * `next` and `cframe` last (3.11.2 lines 840 to 842; so does the code of 3.11.7). Up to 3.10 and
 * from 3.12 on it is linked as its last act, but freed as freely.
 *
 * So whoever wants to know of another thread's state holds the lock under which CPython itself
 * links and unlinks: HEAD_LOCK() of its pycore_pystate.h, `_PyRuntime.interpreters.mutex`. A
 * thread that holds this lock never waits for the GIL, so one that has the GIL may wait for the
 * lock. While we hold it, nothing may run that could want it: no Python code, no cyclic
 * collector. */
#pragma once

#include "agent/cpython/python.h"

#define THREAD_STATES_MAX 65536 /* of an interpreter that are visited */

/* All functions are called with the GIL of the interpreter. They wait for the lock for a second at
 * most, which is longer than any running thread keeps it. -EOPNOTSUPP: this CPython's lock was not
 * found; -EBUSY: other threads had it all the time, or the calling thread itself is inside CPython
 * with it; -ESHUTDOWN: Python is ending, and threads that were ended for that have left states
 * behind which nobody may look at. */

/* An error of these functions in words. */
const char *thread_states_words(int error);

/* Calls `visit` with each thread state, the newest first, while the lock is held. `visit` may read
 * and write the state and take its frame by PyThreadState_GetFrame(), and may call nothing else of
 * Python's. The walk ends when `visit` returns false. Returns 0 or an error. */
int thread_states_each(PyInterpreterState *interpreter,
                       bool (*visit)(PyThreadState *state, void *arg), void *arg);
/* thread_states_each() that doesn't wait: -EBUSY if the lock isn't free. */
int thread_states_each_now(PyInterpreterState *interpreter,
                           bool (*visit)(PyThreadState *state, void *arg), void *arg);

/* A thread at the moment of the call; its state may be gone since. */
struct thread_seen {
    uint64_t id;          /* PyThreadState_GetID() */
    PyThreadState *state; /* an address and no more */
    uint64_t ident;       /* pthread_t, of thread_states_all(); 0: not known */
    PyFrameObject *frame; /* the innermost one of Python, a reference; NULL: none, or no memory */
};
/* All threads of an interpreter. thread_states_drop() frees *out. -ENOMEM. */
int thread_states_all(PyInterpreterState *interpreter, struct thread_seen **out, size_t *count);
void thread_states_drop(struct thread_seen *all, size_t count);

/* The thread of a state, which may be gone: then -ESRCH. The caller owns the frame in *out. */
int thread_states_find(PyInterpreterState *interpreter, const PyThreadState *state,
                       struct thread_seen *out);
/* Whether a state still belongs to the thread with this number of the kernel's, as far as that can
 * be seen. */
bool thread_states_is(PyInterpreterState *interpreter, const PyThreadState *state, int32_t tid);
/* Whether a thread state with this id exists; also true where that can't be known. */
bool thread_states_has(PyInterpreterState *interpreter, uint64_t id);

/* Takes the lock alone: it guards the list of interpreters, too. */
int thread_states_lock(void);
void thread_states_unlock(void);
