/* Which threads that run Python are ours: serve/python_thread.c makes them. One serves; others are
 * retired, and end once the code ends that they got stuck in. */
#pragma once

#include "agent/cpython/python.h"

#include <pthread.h>

#define OWN_THREADS_MAX 8 /* more than these don't get stuck */

struct own_thread {
    pthread_t thread;
    bool exists;          /* it was made, and not joined; with agent_lock */
    PyThreadState *state; /* in the main interpreter; NULL: not yet, or no more. Its own business,
                             but for fork */
};
extern struct own_thread own_threads[OWN_THREADS_MAX];

/* The calling thread, if it is one of them, retired ones too; else NULL. */
struct own_thread *own_thread_self(void);
/* Whether a thread state is one of theirs, in the main interpreter, or that of the calling one in
 * any. With a GIL. */
bool own_thread_is(const PyThreadState *state);
/* In a child after fork: none is there. */
void own_threads_forget(void);
