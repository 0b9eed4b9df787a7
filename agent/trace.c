#include "agent/trace.h"

#include "agent/agent.h"
#include "agent/fork.h"
#include "agent/thread.h"
#include "agent/traced.h"

#include <errno.h>
#include <stdio.h>

#define SLOWS "slows Python code 3 to 6 times while it is on, before CPython 3.12"

/* What there is in an interpreter. All have one GIL in these versions. */
static struct trace {
    trace_function *calls[TRACE_CLIENTS]; /* NULL: no client */
    trace_wants *wants[TRACE_CLIENTS];
    const PyThreadState *newest;          /* the last one that was found to be traced */
} traces[INTERPRETERS_MAX];
static unsigned forks; /* fork_count() when a client came */

static struct trace *trace_of(const struct interpreter *interpreter)
{
    return &traces[interpreter - agent.interpreters];
}

static bool has_clients(const struct trace *self)
{
    for (size_t i = 0; i < TRACE_CLIENTS; i++)
        if (self->calls[i])
            return true;
    return false;
}

static bool is_agents(const PyThreadState *state)
{
    for (size_t i = 0; i < PYTHON_THREADS_MAX; i++)
        if (agent.pythons[i].state == state)
            return true;
    return state == PyThreadState_Get() && python_thread_self();
}

/* Traces the threads that are not; how many have a trace function of their own. */
static unsigned trace_all(struct trace *self, const struct interpreter *interpreter)
{
    PyThreadState *state = traced_first(interpreter->state);
    unsigned others = 0;

    self->newest = state;
    for (unsigned i = 0; state && i < TRACED_THREADS_MAX; i++, state = traced_next(state)) {
        if (is_agents(state))
            continue;
        traced_on(state);
        others += traced_is_others(state);
    }
    return others;
}

/* That of the calling thread, if somebody is interested and this is no child after fork; else NULL. */
static struct interpreter *find_here(void)
{
    const PyInterpreterState *here = PyInterpreterState_Get();

    for (size_t i = 0; i < INTERPRETERS_MAX && forks == fork_count(); i++) {
        struct interpreter *interpreter = &agent.interpreters[i];
        bool ended = i > 0 && interpreter->closed; /* the main one's end is worth hearing of */
        if (interpreter->state == here && !ended && has_clients(&traces[i]))
            return interpreter;
    }
    return NULL;
}

/* What a client does may make others come and go. */
static int trace(PyObject *object, PyFrameObject *frame, int what, PyObject *arg)
{
    struct interpreter *interpreter = find_here();
    bool good = true;

    if (!interpreter) { /* the thread runs as fast as ever */
        traced_off(PyThreadState_Get());
        return 0;
    }
    struct trace *self = trace_of(interpreter);
    if (traced_first(interpreter->state) != self->newest)
        trace_all(self, interpreter);
    for (size_t i = 0; i < TRACE_CLIENTS && good; i++)
        if (self->calls[i])
            good = self->calls[i](interpreter, frame, (enum trace_what)what, arg);
    return good ? 0 : -1;
}

/* ---- clients ---- */

static void say(unsigned others, char words[PROTO_WORDS_MAX])
{
    if (others)
        snprintf(words, PROTO_WORDS_MAX, SLOWS "; not seen: %u threads that have a trace function of their own", others);
    else
        snprintf(words, PROTO_WORDS_MAX, SLOWS);
}

int trace_add(struct interpreter *interpreter, enum trace_client client, trace_function *call, trace_wants *wants,
              char words[PROTO_WORDS_MAX])
{
    struct trace *self = trace_of(interpreter);

    int r = traced_bind(trace);
    if (r < 0)
        return r;
    forks = fork_count();
    self->calls[client] = call;
    self->wants[client] = wants;
    say(trace_all(self, interpreter), words);
    return 0;
}

void trace_again(struct interpreter *interpreter)
{
    if (has_clients(trace_of(interpreter)))
        trace_all(trace_of(interpreter), interpreter);
}

void trace_remove(struct interpreter *interpreter, enum trace_client client)
{
    struct trace *self = trace_of(interpreter);

    if (!self->calls[client])
        return;
    self->calls[client] = NULL;
    if (has_clients(self))
        return;
    PyThreadState *state = traced_first(interpreter->state);
    for (unsigned i = 0; state && i < TRACED_THREADS_MAX; i++, state = traced_next(state))
        traced_off(state);
}

void trace_forget(void)
{
    for (size_t i = 0; i < INTERPRETERS_MAX; i++)
        traces[i] = (struct trace){0};
}
