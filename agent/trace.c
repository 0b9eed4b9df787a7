#include "agent/trace.h"

#include "agent/agent.h"
#include "agent/fork.h"
#include "agent/thread.h"
#include "agent/trace_enter.h"
#include "agent/traced.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#define FRAMES_MAX 1000 /* that are looked at for one that is wanted; beyond them there may be one */
#define WAIT_MS 500
#define EVERYWHERE "slows Python code 3 to 6 times while it is on, before CPython 3.12"
#define RAISES "slows functions in which exceptions are caught 3 to 6 times until they return, before CPython 3.12"
#define WANTED "slows the functions that it is in 3 to 6 times, before CPython 3.12"

struct trace traces[INTERPRETERS_MAX];
unsigned trace_turn;
__thread const void *trace_raised;
static unsigned forks;  /* fork_count() when a client came */
static unsigned inside; /* calls of clients that have not returned, in all threads */

bool trace_has_clients(const struct trace *self)
{
    for (size_t i = 0; i < TRACE_CLIENTS; i++)
        if (self->calls[i])
            return true;
    return false;
}

bool trace_is_agents(const PyThreadState *state)
{
    for (size_t i = 0; i < PYTHON_THREADS_MAX; i++)
        if (agent.pythons[i].state == state)
            return true;
    return state == PyThreadState_Get() && python_thread_self();
}

/* ---- what is traced ---- */

static bool has_scope(const struct trace *self, enum trace_scope scope)
{
    for (size_t i = 0; i < TRACE_CLIENTS; i++)
        if (self->calls[i] && self->scopes[i] == scope)
            return true;
    return false;
}

enum trace_interest trace_wanted(const struct trace *self, PyThreadState *state, PyObject *code, bool entered)
{
    enum trace_interest most = TRACE_NEVER;

    for (size_t i = 0; i < TRACE_CLIENTS; i++) {
        enum trace_interest interest =
            self->wants[i] ? self->wants[i](self->interpreter, state, code, entered) : TRACE_NEVER;
        most = interest > most ? interest : most;
    }
    return most;
}

static bool is_wanted(const struct trace *self, PyThreadState *state, PyFrameObject *frame)
{
    _cleanup_unref_ PyObject *code = (PyObject *)PyFrame_GetCode(frame);
    return trace_wanted(self, state, code, false) == TRACE_NOW;
}

/* In these versions whoever makes an object, as frames are from 3.11 on, may have to run the cyclic collector, and that runs
 * anything. */
bool trace_keeps(struct trace *self, PyThreadState *state, PyFrameObject *frame)
{
    bool collects = PyGC_Disable(), keeps = false;
    unsigned depth;

    for (depth = 0; frame && depth < FRAMES_MAX && !keeps; depth++) {
        keeps = is_wanted(self, state, frame);
        PyFrameObject *back = python.frame_back(frame);
        Py_DecRef((PyObject *)frame);
        frame = back;
    }
    keeps = keeps || frame;
    Py_DecRef((PyObject *)frame);
    PyErr_Clear();
    if (collects)
        PyGC_Enable();
    return keeps;
}

static void arrange_thread(struct trace *self, PyThreadState *state)
{
    if (self->everywhere || trace_keeps(self, state, PyThreadState_GetFrame(state)))
        traced_on(state);
    else
        traced_rest(state, self->raises);
}

/* Threads that are new only. */
static void trace_new(struct trace *self)
{
    PyThreadState *state = traced_first(self->interpreter->state);

    self->newest = state;
    for (unsigned i = 0; state && i < TRACED_THREADS_MAX; i++, state = traced_next(state))
        if (!trace_is_agents(state))
            traced_on(state);
}

unsigned trace_arrange(struct trace *self)
{
    bool clients = trace_has_clients(self);
    unsigned others = 0;

    trace_turn++;
    self->everywhere = clients && (has_scope(self, TRACE_ALL) || self->deep || trace_enter_begin(self) < 0);
    self->raises = has_scope(self, TRACE_RAISES);
    if (!clients || self->everywhere)
        trace_enter_end(self);
    PyThreadState *state = traced_first(self->interpreter->state);
    self->newest = state;
    for (unsigned i = 0; state && i < TRACED_THREADS_MAX; i++, state = traced_next(state)) {
        if (!trace_is_agents(state))
            arrange_thread(self, state);
        others += traced_is_others(state);
    }
    return others;
}

/* ---- the trace function ---- */

/* That of the calling thread, if somebody is interested and this is no child after fork; else NULL. */
static struct trace *find_here(void)
{
    const PyInterpreterState *here = PyInterpreterState_Get();

    for (size_t i = 0; i < INTERPRETERS_MAX && forks == fork_count(); i++) {
        const struct interpreter *interpreter = &agent.interpreters[i];
        bool ended = i > 0 && interpreter->closed; /* the main one's end is worth hearing of */
        if (interpreter->state == here && !ended && trace_has_clients(&traces[i]))
            return &traces[i];
    }
    return NULL;
}

/* Whether a frame that nobody wants has to stay traced, for older ones. */
static bool stays(struct trace *self, PyThreadState *state, PyFrameObject *frame)
{
    PyFrameObject *back = python.frame_back(frame);

    if (back && self->kept == back && self->kept_turn == trace_turn) {
        Py_DecRef((PyObject *)back);
        return true;
    }
    self->kept = NULL;
    if (!trace_keeps(self, state, back))
        return false;
    self->kept = back; /* no more than a number */
    self->kept_turn = trace_turn;
    return true;
}

/* What a client does may make others come and go. Where it runs code, the frames of that have turned tracing off. */
static int tell(struct trace *self, PyFrameObject *frame, int what, PyObject *arg)
{
    unsigned before = trace_turn;
    bool good = true;

    inside++;
    for (size_t i = 0; i < TRACE_CLIENTS && good; i++)
        if (self->calls[i])
            good = self->calls[i](self->interpreter, frame, (enum trace_what)what, arg);
    inside--;
    if (before == trace_turn)
        traced_on(PyThreadState_Get());
    return good ? 0 : -1;
}

/* Its code may have been loaded only now. */
static void note_entry(const struct trace *self, PyThreadState *state, PyFrameObject *frame)
{
    _cleanup_unref_ PyObject *code = (PyObject *)PyFrame_GetCode(frame);
    trace_enter_wanted(self, state, code);
}

static int trace(PyObject *object, PyFrameObject *frame, int what, PyObject *arg)
{
    struct trace *self = find_here();
    PyThreadState *state = PyThreadState_Get();

    if (!self) { /* the thread runs as fast as ever */
        traced_rest(state, false);
        return 0;
    }
    if (what == TRACE_EXCEPTION)
        trace_raised = frame;
    if (self->everywhere) {
        if (traced_first(self->interpreter->state) != self->newest)
            trace_new(self);
        if (what == TRACE_CALL)
            note_entry(self, state, frame);
    } else if (!self->raises && !is_wanted(self, state, frame)) {
        if (!stays(self, state, frame))
            traced_rest(state, false);
        return 0;
    }
    return tell(self, frame, what, arg);
}

/* ---- clients ---- */

static void say(const struct trace *self, unsigned others, char words[PROTO_WORDS_MAX])
{
    const char *slows = self->everywhere ? EVERYWHERE : self->raises ? RAISES : WANTED;

    if (others)
        snprintf(words, PROTO_WORDS_MAX, "%s; not seen: %u threads that have a trace function of their own", slows,
                 others);
    else
        snprintf(words, PROTO_WORDS_MAX, "%s", slows);
}

int trace_add(struct interpreter *interpreter, enum trace_client client, trace_function *call, trace_wants *wants,
              enum trace_scope scope, char words[PROTO_WORDS_MAX])
{
    struct trace *self = &traces[interpreter - agent.interpreters];

    int r = traced_bind(trace);
    if (r < 0)
        return r;
    forks = fork_count();
    self->interpreter = interpreter;
    self->calls[client] = call;
    self->wants[client] = wants;
    self->scopes[client] = scope;
    say(self, trace_arrange(self), words);
    return 0;
}

void trace_again(struct interpreter *interpreter)
{
    struct trace *self = &traces[interpreter - agent.interpreters];

    if (trace_has_clients(self))
        trace_arrange(self);
}

void trace_remove(struct interpreter *interpreter, enum trace_client client)
{
    struct trace *self = &traces[interpreter - agent.interpreters];

    if (!self->calls[client])
        return;
    self->calls[client] = NULL;
    self->wants[client] = NULL;
    self->deep = self->deep && trace_has_clients(self);
    trace_arrange(self);
}

void trace_wait(void)
{
    for (unsigned i = 0; i < WAIT_MS && trace_remains(); i++) {
        PyThreadState *state = PyEval_SaveThread();
        usleep(1000);
        PyEval_RestoreThread(state);
    }
}

bool trace_remains(void) { return inside || trace_enter_remains(); }

void trace_forget(void)
{
    trace_turn++;
    for (size_t i = 0; i < INTERPRETERS_MAX; i++) {
        trace_enter_end(&traces[i]);
        traces[i] = (struct trace){.interpreter = traces[i].interpreter};
    }
}
