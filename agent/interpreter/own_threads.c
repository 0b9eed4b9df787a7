#include "agent/interpreter/own_threads.h"

#include <string.h>

struct own_thread own_threads[OWN_THREADS_MAX];

struct own_thread *own_thread_self(void)
{
    for (size_t i = 0; i < OWN_THREADS_MAX; i++)
        if (own_threads[i].exists && pthread_equal(own_threads[i].thread, pthread_self()))
            return &own_threads[i];
    return NULL;
}

bool own_thread_is(const PyThreadState *state)
{
    for (size_t i = 0; i < OWN_THREADS_MAX; i++)
        if (own_threads[i].state == state)
            return true;
    return state == PyThreadState_Get() && own_thread_self();
}

void own_threads_forget(void) { memset(own_threads, 0, sizeof own_threads); }
