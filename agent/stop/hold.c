#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "agent/base/fork_count.h"
#include "agent/base/life.h"
#include "agent/base/lock.h"
#include "agent/cpython/gil.h"
#include "agent/interpreter/joining.h"
#include "agent/interpreter/own_threads.h"
#include "agent/record/recorder.h"
#include "agent/stop/held.h"
#include "agent/stop/step.h"
#include "agent/stop/stop_table.h"
#include "agent/wire/channel.h"
#include "agent/wire/record.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* How often the main thread looks whether there are signals for Python. */
#define SIGNALS_NS 50000000ull
/* How long a detach waits for threads to get the GIL. */
#define LEAVE_NS 5000000000ull

struct held *held_all;
__thread struct held *held_own;
static int inside; /* threads, hold_inside() */

/* ---- with the lock ---- */

static struct held *find(int32_t tid)
{
    for (struct held *held = held_all; held; held = held->next)
        if (held->tid == tid && !held->going)
            return held;
    return NULL;
}

void held_tell(struct held *held, const char *why)
{
    if (!held->going)
        held->going = why;
    pthread_cond_signal(&held->told);
}

static void tell_all(const struct interpreter *interpreter, const char *why)
{
    for (struct held *held = held_all; held; held = held->next)
        if (!interpreter || held->interpreter == interpreter)
            held_tell(held, why);
}

static bool may_hold(const struct interpreter *interpreter)
{
    return probe_agent_record.state == RECORD_RUNNING && channel_is_greeted() &&
           !agent_life.detaching && !agent_life.detached && !agent_life.ending &&
           !interpreter->closed && !interpreter->exiting;
}

/* ---- holding ---- */

/* Whether signal handlers of Python run in this thread. */
static bool runs_signals(const struct interpreter *interpreter)
{
    if (!interpreter_is_main(interpreter))
        return false;
    _cleanup_unref_ PyObject *ident =
        interpreter->guest.probe ? PyObject_GetAttrString(interpreter->guest.probe, "main_thread")
                                 : NULL;
    unsigned long main = ident ? PyLong_AsUnsignedLong(ident) : 0;
    PyErr_Clear();
    return main ? main == (unsigned long)pthread_self() : gettid() == getpid();
}

/* Puts it among those that are held. False: it can't be. */
static bool enter(struct held *held)
{
    const struct hold *hold = held->hold;
    uint64_t for_ns = hold->for_ns ? hold->for_ns : PROTO_STOP_NS;
    for_ns = for_ns < PROTO_STOP_MAX_NS ? for_ns : PROTO_STOP_MAX_NS;
    uint64_t since_ns = realtime_ns();
    const struct probe_stop stop = {.tid = held->tid,
                                    .why = hold->why,
                                    .id = hold->id,
                                    .line = hold->line,
                                    .since_ns = since_ns,
                                    .until_ns = since_ns + for_ns};

    _guard_agent_;
    if (!may_hold(held->interpreter) || (hold->removed && *hold->removed))
        return false;
    held->stop = stops_take(&stop);
    if (!held->stop)
        return false;
    held->until_ns = monotonic_ns() + for_ns;
    held->next = held_all;
    held_all = held;
    return true;
}

/* With the GIL again. */
static void let_go(struct held *held)
{
    _guard_agent_;
    struct held **link = &held_all;

    while (*link != held)
        link = &(*link)->next;
    *link = held->next;
    stops_free(held->stop);
    pthread_cond_broadcast(&agent_changed);
}

/* ---- waiting ---- */

/* Waits until there is something to do: then it has to have the GIL. */
static void wait_told(struct held *held)
{
    _guard_agent_;
    uint64_t end = held->is_main ? monotonic_ns() + SIGNALS_NS : held->until_ns;
    end = end < held->until_ns ? end : held->until_ns;
    struct timespec until = timespec_of(end);

    while (!held->going && !held->job)
        if (pthread_cond_clockwait(&held->told, &agent_lock, CLOCK_MONOTONIC, &until)) {
            if (end == held->until_ns)
                held_tell(held, "deadline");
            return;
        }
}

/* Whether there is nothing to wait for any more. After fork all of it is
 * forgotten, but for this. */
static bool goes_on(const struct held *held)
{
    if (held->forks != fork_count())
        return true;
    _guard_agent_;
    return held->going && !held->job;
}

/* False: a signal handler raised. */
static bool wait_here(struct held *held)
{
    while (!goes_on(held)) {
        PyThreadState *state = PyEval_SaveThread();
        wait_told(held);
        gil_take(state, held->job ? held->job->gil_interval : 0);
        if (held->job)
            held_run_job();
        else if (held->is_main && !held->going && PyErr_CheckSignals() < 0)
            return false;
    }
    return true;
}

/* Leaves a row in events. */
static void note_going(const struct held *held, double resumed)
{
    struct ring *ring = recorder_first_use(RECORDED_EVENTS);
    const char *why = held->going ? held->going : "signal";
    double held_s = resumed - (double)held->stop->since_ns * 1e-9;
    char attrs[64];

    if (held->hold->id)
        snprintf(attrs, sizeof attrs, "{\"id\": %u, \"held\": %.6f}", held->hold->id, held_s);
    else
        snprintf(attrs, sizeof attrs, "{\"held\": %.6f}", held_s);
    const struct events_row row = {
        .ts = resumed,
        .tid = held->tid,
        .kind = {"continue", strlen("continue")},
        .name = {why, strlen(why)},
        .span = RING_NULL_INTEGER,
        .attrs = {attrs, strlen(attrs)},
    };
    if (ring)
        events_append(ring, &row, NULL);
}

bool hold_thread(struct interpreter *interpreter, const struct hold *hold, void (*begun)(void *arg),
                 void *arg, double *resumed)
{
    struct held held = {.interpreter = interpreter,
                        .hold = hold,
                        .thread = pthread_self(),
                        .tid = gettid(),
                        .state = PyThreadState_GetID(PyThreadState_Get()),
                        .told = PTHREAD_COND_INITIALIZER,
                        .forks = fork_count(),
                        .is_main = runs_signals(interpreter)};

    *resumed = 0;
    if (held_own || own_thread_self() || probe_agent_record.pid != getpid())
        return true;
    held.stepped = step_end(interpreter);
    exit_watch(interpreter);
    if (!enter(&held))
        return true;
    begun(arg);
    held_own = &held;
    bool fine = wait_here(&held);
    held_own = NULL;
    *resumed = realtime_s();
    if (held.forks != fork_count())
        return fine;
    note_going(&held, *resumed);
    let_go(&held);
    return fine;
}

void hold_inside(int by)
{
    _guard_agent_;
    inside += by > 0 || inside ? by : 0; /* forgotten after fork */
    pthread_cond_broadcast(&agent_changed);
}

/* ---- being told ---- */

bool hold_has(int32_t tid)
{
    _guard_agent_;
    return find(tid) != NULL;
}

bool hold_has_state(uint64_t state)
{
    _guard_agent_;
    for (const struct held *held = held_all; held; held = held->next)
        if (held->state == state)
            return true;
    return false;
}

int hold_continue(int32_t tid, char words[PROTO_WORDS_MAX])
{
    _guard_agent_;
    if (!tid) {
        step_cancel();
        tell_all(NULL, "continue");
        return 0;
    }
    struct held *held = find(tid);
    if (!held) {
        snprintf(words, PROTO_WORDS_MAX, "the thread isn't stopped");
        return -ESRCH;
    }
    held_tell(held, "continue");
    return 0;
}

void hold_removed(uint32_t id)
{
    _guard_agent_;
    for (struct held *held = held_all; held; held = held->next)
        if (held->hold->id == id)
            held_tell(held, "removed");
}

void hold_release(void)
{
    step_cancel();
    _guard_agent_;
    tell_all(NULL, "daemon gone");
}

void hold_leave(const struct interpreter *interpreter)
{
    _guard_agent_;
    tell_all(interpreter, "exit");
}

bool hold_end(void)
{
    uint64_t end = monotonic_ns() + LEAVE_NS;
    struct timespec until = timespec_of(end);

    _guard_agent_;
    tell_all(NULL, "detach");
    while (held_all || inside)
        if (pthread_cond_clockwait(&agent_changed, &agent_lock, CLOCK_MONOTONIC, &until))
            return false;
    return true;
}

void hold_forget(void)
{
    held_all = NULL;
    inside = 0;
    stops_forget();
}
