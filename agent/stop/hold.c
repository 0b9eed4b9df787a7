#include "agent/base/clock.h"
#include "agent/base/fork_count.h"
#include "agent/base/life.h"
#include "agent/base/lock.h"
#include "agent/cpython/gil.h"
#include "agent/interpreter/joining.h"
#include "agent/interpreter/own_threads.h"
#include "agent/record/recorder.h"
#include "agent/stop/hold.h"
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

/* A held thread, on its stack. What isn't its own business alone is under the agent's lock. */
struct held {
    struct held *next;
    struct interpreter *interpreter;
    const struct hold *hold;
    struct probe_stop *stop;
    pthread_t thread;
    uint64_t state; /* PyThreadState_GetID() */
    pid_t tid;
    pthread_cond_t told; /* `going` or `job` has changed */
    const char *going;   /* NULL; or why it is told to go on, as events have it */
    struct job *job;     /* NULL: none */
    uint64_t until_ns;   /* CLOCK_MONOTONIC */
    unsigned forks;      /* fork_count() */
    int jumped_to;       /* line; 0: it hasn't jumped */
    bool stepped;        /* a step ended here */
    bool is_main;        /* it is the one that runs signal handlers */
};

/* newest first; those that are told to go on are in it until they have the GIL */
static struct held *held_all;
/* this thread's, so what it evaluates isn't held; NULL: none */
static __thread struct held *held_own;
static int inside; /* threads, hold_inside() */
static unsigned jobs_run;
static uint32_t stops; /* so many there were */
/* numbers of open files that are closed: the last of so many */
static uint64_t released[HOLD_RELEASED_MAX];
static uint64_t nreleased;

/* ---- with the lock ---- */

static struct held *find(int32_t tid)
{
    for (struct held *held = held_all; held; held = held->next)
        if (held->tid == tid && !held->going)
            return held;
    return NULL;
}

/* Tells a held thread to go on, once it has run its job. why: as events have it. */
static void tell(struct held *held, const char *why)
{
    if (!held->going)
        held->going = why;
    pthread_cond_signal(&held->told);
}

static void tell_all(const struct interpreter *interpreter, const char *why)
{
    for (struct held *held = held_all; held; held = held->next)
        if (!interpreter || held->interpreter == interpreter)
            tell(held, why);
}

static bool is_released(uint64_t here)
{
    for (size_t i = 0; i < HOLD_RELEASED_MAX; i++)
        if (here && released[i] == here)
            return true;
    return false;
}

static bool may_hold(const struct interpreter *interpreter, bool alone)
{
    return probe_agent_record.state == RECORD_RUNNING && (alone || channel_is_greeted()) &&
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
    struct probe_stop stop = {.tid = held->tid,
                              .why = hold->why,
                              .id = hold->id,
                              .line = hold->line,
                              .since_ns = since_ns,
                              .until_ns = since_ns + for_ns};

    _guard_agent_;
    if (!may_hold(held->interpreter, hold->alone) || (hold->removed && *hold->removed) ||
        is_released(hold->here))
        return false;
    stop.number = ++stops;
    held->stop = stop_table_take(&stop);
    if (!held->stop)
        return false;
    held->until_ns = monotonic_ns() + for_ns;
    held->next = held_all;
    held_all = held;
    return true;
}

/* Takes a thread that goes on out of the list. It has the GIL again. */
static void let_go(struct held *held)
{
    _guard_agent_;
    struct held **link = &held_all;

    while (*link != held)
        link = &(*link)->next;
    *link = held->next;
    stop_table_free(held->stop);
    pthread_cond_broadcast(&agent_changed);
}

/* ---- waiting ---- */

/* Runs the job of this thread, with the GIL. */
static void run_job(struct held *held)
{
    struct job *job = held->job;
    const struct hold *hold = held->hold;

    __atomic_fetch_add(&jobs_run, 1, __ATOMIC_RELAXED);
    job->run(held->interpreter, hold->frame ? (PyObject *)hold->frame : hold->value, job->arg);
    _guard_agent_;
    held->job = NULL;
    job->done = true;
    pthread_cond_broadcast(&agent_changed);
}

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
                tell(held, "deadline");
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
            run_job(held);
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
    char attrs[96];

    if (held->hold->id)
        snprintf(attrs, sizeof attrs, "{\"id\": %u, \"stop\": %u, \"held\": %.6f}", held->hold->id,
                 held->stop->number, held_s);
    else
        snprintf(attrs, sizeof attrs, "{\"stop\": %u, \"held\": %.6f}", held->stop->number, held_s);
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
    channel_tell_happened();
}

bool hold_thread(struct interpreter *interpreter, const struct hold *hold,
                 void (*begun)(void *arg, uint32_t number), void *arg, double *resumed)
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
    joining_watch(interpreter);
    if (!enter(&held))
        return true;
    begun(arg, held.stop->number);
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

/* ---- what it is told to run may ask and tell ---- */

unsigned hold_jobs_run(void) { return __atomic_load_n(&jobs_run, __ATOMIC_RELAXED); }

const struct hold *hold_own(void) { return held_own ? held_own->hold : NULL; }

static PyObject *held_value(PyObject *self, PyObject *unused)
{
    const struct hold *hold = hold_own();

    if (hold && hold->returned)
        return Py_BuildValue("(sO)", "__return__", hold->returned);
    if (hold && hold->value &&
        (hold->event == HEAR_RAISE || hold->event == HEAR_UNWIND || hold->why == STOP_CRASH))
        return Py_BuildValue("(sO)", "__exception__", hold->value);
    return Py_BuildValue("(OO)", Py_None, Py_None);
}

static PyMethodDef held_def = {"held", held_value, METH_NOARGS, NULL};

int hold_lend(struct guest *guest)
{
    _cleanup_unref_ PyObject *function = guest_function(guest, &held_def);

    return function ? PyObject_SetAttrString(guest->probe, "held", function) : -1;
}

void hold_jumped(int line)
{
    _guard_agent_;
    held_own->jumped_to = line;
    stop_table_set_line(held_own->stop, line);
}

/* From 3.12 on a line that is jumped to is told of like any other, and so is, once a function is
 * entered, its only line. Where a breakpoint holds the thread, who hears of steps has the event
 * still before it, if it heard before or hear_tells_who_begins(). */
int hold_told_line(void)
{
    const struct hold *hold = held_own->hold;
    bool at_line = hold->event == HEAR_LINE || hold->event == HEAR_JUMP;

    if (held_own->jumped_to)
        return held_own->jumped_to;
    if (hold->event == HEAR_EVENTS) /* it is beyond the event of that line */
        return 0;
    if (hold->why != STOP_BREAKPOINT)
        return at_line ? 0 : hold->line;
    return hear_tells_who_begins() || held_own->stepped || !at_line ? hold->line : 0;
}

void hold_go(const char *why)
{
    _guard_agent_;
    tell(held_own, why);
}

/* ---- having it run something ---- */

static bool is_meant(const struct job_for *whose, const struct held *held)
{
    bool crash = held->hold->why == STOP_CRASH;

    switch (whose->who) {
    case JOB_BY_TID: return held->tid == whose->tid;
    case JOB_OF_CRASH: return crash;
    default: return !(crash && whose->in_frames) && pthread_equal(held->thread, whose->thread);
    }
}

/* With the lock. NULL: nobody. */
static struct held *find_for(const struct job_for *whose)
{
    for (struct held *held = held_all; held; held = held->next)
        if (!held->going && is_meant(whose, held))
            return held;
    return NULL;
}

int hold_run(const struct job_for *whose, struct job *job)
{
    _guard_agent_;
    struct held *held = find_for(whose);
    if (!held || held->job)
        return held ? -EBUSY : -ESRCH;
    held->job = job;
    pthread_cond_signal(&held->told);
    while (!job->done)
        pthread_cond_wait(&agent_changed, &agent_lock);
    return 0;
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
    tell(held, "continue");
    return 0;
}

void hold_removed(uint32_t id, const char *why)
{
    _guard_agent_;
    for (struct held *held = held_all; held; held = held->next)
        if (held->hold->id == id)
            tell(held, why);
}

void hold_let_go(const bool *removed)
{
    _guard_agent_;
    for (struct held *held = held_all; held; held = held->next)
        if (held->hold->removed == removed && *removed)
            tell(held, "closed");
}

bool hold_is_released(uint64_t here)
{
    if (!here)
        return false;
    _guard_agent_;
    return is_released(here);
}

uint64_t hold_released(void)
{
    _guard_agent_;
    return nreleased;
}

bool hold_release(uint64_t here)
{
    _guard_agent_;
    released[nreleased++ % HOLD_RELEASED_MAX] = here;
    pause_table_clear(here);
    for (struct held *held = held_all; held; held = held->next)
        if (held->hold->here == here)
            tell(held, "closed");
    return step_release(nreleased);
}

void hold_daemon_gone(void)
{
    step_cancel();
    _guard_agent_;
    for (struct held *held = held_all; held; held = held->next)
        if (!held->hold->alone)
            tell(held, "daemon gone");
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
    stop_table_forget();
}
