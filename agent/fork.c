/* fork() leaves the child with the thread that called it. There the agent's descriptors are closed
 * and its threads forgotten: the child has no agent until it gets one. What is Python's stays: it
 * was copied with the interpreter. */
#include "agent/fork.h"

#include "agent/base/fork_count.h"
#include "agent/base/life.h"
#include "agent/base/lock.h"
#include "agent/base/thread.h"
#include "agent/cpython/gil.h"
#include "agent/eval/requests.h"
#include "agent/interpreter/part.h"
#include "agent/record/rings.h"
#include "agent/serve/python_thread.h"
#include "agent/wire/channel.h"
#include "agent/wire/record.h"

void fork_forget(void)
{
    lock_forget();
    if (!record_is_running())
        return;
    channel_forget();
    requests_forget();
    agent_life.detaching = agent_life.detached = false;
    threads_own_forget();
    python_thread_forget();
    parts_forget();
    interpreter_forget();
    probe_agent_record.channel_tid = probe_agent_record.python_tid = 0;
    record_set_state(RECORD_IDLE);
}

static void before_fork(void)
{
    rings_lock();
    pthread_mutex_lock(&agent_lock);
}

static void after_in_parent(void)
{
    pthread_mutex_unlock(&agent_lock);
    rings_unlock();
}

static void after_in_child(void)
{
    fork_number++;
    gil_restore_interval();
    rings_unlock();
    fork_forget();
}

/* Undone by libc when the library is unloaded. */
__attribute__((constructor)) static void register_handlers(void)
{
    pthread_atfork(before_fork, after_in_parent, after_in_child);
}
