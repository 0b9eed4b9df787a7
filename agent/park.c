#include "agent/park.h"

#include "agent/agent.h"
#include "agent/eval.h"
#include "agent/exit.h"
#include "agent/fork.h"
#include "agent/gil.h"
#include "agent/recorder.h"
#include "agent/step.h"
#include "agent/stops.h"
#include "agent/thread.h"
#include "fs/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* How often the main thread looks whether there are signals for Python. */
#define SIGNALS_NS 50000000ull
/* How long a detach waits for threads to get the GIL. */
#define LEAVE_NS 5000000000ull

/* What a held thread is asked to run. Python's thread waits for it. */
struct job {
    struct request *request;
    struct evaluation *out;
    bool to_answer, done;
};

/* A held thread, on its stack. What isn't its own business alone is under the agent's lock. */
struct held {
    struct held *next;
    struct interpreter *interpreter;
    const struct park *park;
    struct probe_stop *stop;
    pthread_t thread;
    uint64_t state;        /* PyThreadState_GetID() */
    pid_t tid;
    pthread_cond_t told;   /* `going` or `job` has changed */
    const char *going;     /* NULL; or why it is told to go on, as events have it */
    struct job *job;       /* NULL: none */
    uint64_t until_ns;     /* CLOCK_MONOTONIC */
    unsigned forks;        /* fork_count() */
    int jumped_to;         /* line; 0: it hasn't jumped */
    bool stepped;          /* a step ended here */
    bool is_main;          /* it is the one that runs signal handlers */
};

static struct held *all;          /* newest first; those that are told to go on are in it until they have the GIL */
static int inside;                /* threads, park_inside() */
static __thread struct held *own; /* this thread's, so what it evaluates isn't held; NULL: none */

/* ---- with the lock ---- */

static struct held *find(int32_t tid)
{
    for (struct held *held = all; held; held = held->next)
        if (held->tid == tid && !held->going)
            return held;
    return NULL;
}

static void tell(struct held *held, const char *why)
{
    if (!held->going)
        held->going = why;
    pthread_cond_signal(&held->told);
}

static void tell_all(const struct interpreter *interpreter, const char *why)
{
    for (struct held *held = all; held; held = held->next)
        if (!interpreter || held->interpreter == interpreter)
            tell(held, why);
}

static bool may_hold(const struct interpreter *interpreter)
{
    return probe_agent_record.state == RECORD_RUNNING && agent.channel.greeted && !agent.detaching && !agent.detached &&
           !agent.ending && !interpreter->closed && !interpreter->exiting;
}

/* ---- holding ---- */

static uint64_t realtime_ns(void) { return (uint64_t)(recorder_now() * 1e9); }

/* Whether signal handlers of Python run in this thread. */
static bool runs_signals(const struct interpreter *interpreter)
{
    if (interpreter != &agent.interpreters[0])
        return false;
    _cleanup_unref_ PyObject *ident =
        interpreter->guest.probe ? PyObject_GetAttrString(interpreter->guest.probe, "main_thread") : NULL;
    unsigned long main = ident ? PyLong_AsUnsignedLong(ident) : 0;
    PyErr_Clear();
    return main ? main == (unsigned long)pthread_self() : gettid() == getpid();
}

/* Puts it among those that are held. False: it can't be. */
static bool hold(struct held *held)
{
    const struct park *park = held->park;
    uint64_t for_ns = park->for_ns ? park->for_ns : PROTO_STOP_NS;
    for_ns = for_ns < PROTO_STOP_MAX_NS ? for_ns : PROTO_STOP_MAX_NS;
    uint64_t since_ns = realtime_ns();
    const struct probe_stop stop = {
        .tid = held->tid, .why = park->why, .id = park->id, .line = park->line,
        .since_ns = since_ns, .until_ns = since_ns + for_ns};

    _guard_agent_;
    if (!may_hold(held->interpreter))
        return false;
    held->stop = stops_take(&stop);
    if (!held->stop)
        return false;
    held->until_ns = agent_now_ns() + for_ns;
    held->next = all;
    all = held;
    return true;
}

/* With the GIL again. */
static void let_go(struct held *held)
{
    _guard_agent_;
    struct held **link = &all;

    while (*link != held)
        link = &(*link)->next;
    *link = held->next;
    stops_free(held->stop);
    pthread_cond_broadcast(&agent.changed);
}

/* ---- waiting ---- */

/* Waits until there is something to do: then it has to have the GIL. */
static void wait_told(struct held *held)
{
    _guard_agent_;
    uint64_t end = held->is_main ? agent_now_ns() + SIGNALS_NS : held->until_ns;
    end = end < held->until_ns ? end : held->until_ns;
    struct timespec until = {(time_t)(end / 1000000000), (long)(end % 1000000000)};

    while (!held->going && !held->job)
        if (pthread_cond_clockwait(&held->told, &agent.lock, CLOCK_MONOTONIC, &until)) {
            if (end == held->until_ns)
                tell(held, "deadline");
            return;
        }
}

/* With the GIL. */
static void run_job(struct job *job)
{
    job->to_answer = python_run(own->interpreter, job->request, job->out);
    _guard_agent_;
    own->job = NULL;
    job->done = true;
    pthread_cond_broadcast(&agent.changed);
}

/* Whether there is nothing to wait for any more. After fork all of it is forgotten, but for this. */
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
        gil_take(state, held->job ? held->job->request->eval.gil_interval : 0);
        if (held->job)
            run_job(held->job);
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

    if (held->park->id)
        snprintf(attrs, sizeof attrs, "{\"id\": %u, \"held\": %.6f}", held->park->id, held_s);
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

bool park_thread(struct interpreter *interpreter, const struct park *park, double *resumed)
{
    struct held held = {
        .interpreter = interpreter, .park = park, .thread = pthread_self(), .tid = gettid(),
        .state = PyThreadState_GetID(PyThreadState_Get()), .told = PTHREAD_COND_INITIALIZER, .forks = fork_count(),
        .is_main = runs_signals(interpreter)};

    *resumed = 0;
    if (own || python_thread_self() || probe_agent_record.pid != getpid())
        return true;
    held.stepped = step_end(interpreter);
    exit_watch(interpreter);
    if (!hold(&held))
        return true;
    own = &held;
    bool fine = wait_here(&held);
    own = NULL;
    *resumed = recorder_now();
    if (held.forks != fork_count())
        return fine;
    note_going(&held, *resumed);
    let_go(&held);
    return fine;
}

const struct park *park_own(void) { return own ? own->park : NULL; }

PyObject *park_here(void)
{
    if (!own)
        return NULL;
    return own->park->frame ? (PyObject *)own->park->frame : own->park->value;
}

void park_jumped(int line)
{
    _guard_agent_;
    own->jumped_to = line;
    stops_set_line(own->stop, line);
}

/* From 3.12 on a line that is jumped to is told of like any other, and so is, once a function is entered, its only line. Where a
 * breakpoint holds it, who hears of steps has that event still before it: from 3.12 on if it had heard before. */
int park_told_line(void)
{
    const struct park *park = own->park;

    if (own->jumped_to)
        return own->jumped_to;
    if (park->why != STOP_BREAKPOINT)
        return park->may_jump ? 0 : park->line;
    return python.version < 0x030c || own->stepped || !park->may_jump ? park->line : 0;
}

void park_inside(int by)
{
    _guard_agent_;
    inside += by;
    pthread_cond_broadcast(&agent.changed);
}

void park_go(const char *why)
{
    _guard_agent_;
    tell(own, why);
}

/* ---- being told ---- */

bool park_holds(int32_t tid)
{
    _guard_agent_;
    return find(tid) != NULL;
}

bool park_holds_state(uint64_t state)
{
    _guard_agent_;
    for (const struct held *held = all; held; held = held->next)
        if (held->state == state)
            return true;
    return false;
}

int park_continue(int32_t tid, char words[PROTO_WORDS_MAX])
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

static bool is_meant(const struct request *request, const struct held *held)
{
    bool crash = held->park->why == STOP_CRASH;

    if (request->op == PROTO_THREAD)
        return held->tid == request->thread.tid;
    if (request->eval.flags & EVAL_IN_CRASH)
        return crash;
    if (crash && request->eval.flags & EVAL_IN_FRAME)
        return false; /* the thread's frames are others than the exception's */
    return pthread_equal(held->thread, (pthread_t)request->eval.thread);
}

/* With the lock: whom a request is meant for; NULL: nobody. */
static struct held *find_for(const struct request *request)
{
    for (struct held *held = all; held; held = held->next)
        if (!held->going && is_meant(request, held))
            return held;
    return NULL;
}

static bool is_for_held(const struct request *request)
{
    if (request->op == PROTO_THREAD)
        return request->thread.verb != THREAD_PAUSE;
    return request->op == PROTO_EVAL && request->eval.flags & (EVAL_ON_THREAD | EVAL_IN_FRAME | EVAL_IN_CRASH);
}

/* Has the held thread do it. -ESRCH: there is none; -EBUSY. */
static int run_there(struct job *job)
{
    _guard_agent_;
    struct held *held = find_for(job->request);
    if (!held || held->job)
        return held ? -EBUSY : -ESRCH;
    held->job = job;
    pthread_cond_signal(&held->told);
    while (!job->done)
        pthread_cond_wait(&agent.changed, &agent.lock);
    return 0;
}

/* Says why it can't be run. False: it may be run elsewhere. */
static bool refuse(const struct request *request, int r, struct proto_done *done)
{
    if (r == -EBUSY) {
        done->error = EBUSY;
        snprintf(done->words, sizeof done->words, "code that was interrupted still runs in the stopped thread");
        return true;
    }
    if (request->op == PROTO_THREAD) {
        done->error = ESRCH;
        snprintf(done->words, sizeof done->words, "the thread isn't stopped");
        return true;
    }
    if (!(request->eval.flags & EVAL_IN_CRASH))
        return false;
    done->error = ENOENT;
    snprintf(done->words, sizeof done->words, "no exception holds the process");
    return true;
}

bool park_run(struct request *request, struct evaluation *out, bool *to_answer)
{
    struct job job = {.request = request, .out = out};

    if (!is_for_held(request))
        return false;
    int r = run_there(&job);
    if (r < 0 && !refuse(request, r, &out->done))
        return false;
    *to_answer = r == 0 ? job.to_answer : requests_claim(request);
    return true;
}

void park_release(void)
{
    step_cancel();
    _guard_agent_;
    tell_all(NULL, "daemon gone");
}

void park_leave(const struct interpreter *interpreter)
{
    _guard_agent_;
    tell_all(interpreter, "exit");
}

bool park_end(void)
{
    uint64_t end = agent_now_ns() + LEAVE_NS;
    struct timespec until = {(time_t)(end / 1000000000), (long)(end % 1000000000)};

    _guard_agent_;
    tell_all(NULL, "detach");
    while (all || inside)
        if (pthread_cond_clockwait(&agent.changed, &agent.lock, CLOCK_MONOTONIC, &until))
            return false;
    return true;
}

void park_forget(void)
{
    all = NULL;
    inside = 0;
    stops_forget();
}
