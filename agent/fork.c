/* fork() leaves the child with the thread that called it. There the agent's descriptors are closed
 * and its threads forgotten: the child has no agent until it gets one. What is Python's stays: it
 * was copied with the interpreter. */
#include "agent/fork.h"

#include "agent/base/clock.h"
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

#define FORK_WAITS_NS 1000000000ull /* for fork_lock: longer than a thread that runs has it */

static bool has_fork_lock; /* the thread that forks; with agent_lock */

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
    const struct timespec until = timespec_of(monotonic_ns() + FORK_WAITS_NS);

    fork_begun = true;
    bool got = pthread_mutex_clocklock(&fork_lock, CLOCK_MONOTONIC, &until) == 0;
    rings_lock();
    pthread_mutex_lock(&agent_lock);
    has_fork_lock = got;
}

static void after_in_parent(void)
{
    bool has = has_fork_lock;

    pthread_mutex_unlock(&agent_lock);
    rings_unlock();
    if (has)
        pthread_mutex_unlock(&fork_lock);
}

static void after_in_child(void)
{
    fork_number++;
    fork_begun = false;
    gil_restore_interval();
    rings_unlock();
    fork_forget();
}

static void register_handlers(void)
{
    pthread_atfork(before_fork, after_in_parent, after_in_child);
}

void fork_begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_handlers);
}
