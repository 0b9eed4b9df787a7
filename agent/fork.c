/* fork() leaves the child with the thread that called it. There the agent's descriptors are closed and its
 * threads forgotten: the child has no agent until it gets one. What is Python's stays: it was copied with
 * the interpreter. */
#include "agent/fork.h"

#include "agent/agent.h"
#include "agent/gil.h"
#include "agent/rings.h"

unsigned fork_number;

static void before_fork(void)
{
    rings_lock();
    pthread_mutex_lock(&agent.lock);
}

static void after_in_parent(void)
{
    pthread_mutex_unlock(&agent.lock);
    rings_unlock();
}

static void after_in_child(void)
{
    fork_number++;
    gil_restore_interval();
    rings_unlock();
    agent_forget();
}

/* Undone by libc when the library is unloaded. */
__attribute__((constructor)) static void register_handlers(void)
{
    pthread_atfork(before_fork, after_in_parent, after_in_child);
}
