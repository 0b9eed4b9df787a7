#include "agent/monitor/trace.h"

#include "agent/base/fork_count.h"
#include "agent/cpython/code_flags.h"
#include "agent/cpython/thread_states.h"
#include "agent/cpython/trace_fields.h"
#include "agent/interpreter/own_threads.h"
#include "agent/monitor/trace_enter.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

/* that are looked at for one that is wanted; beyond them there may be one */
#define FRAMES_MAX 1000
#define WAIT_MS 500
#define EVERYWHERE "slows Python code 3 to 6 times while it is on, before CPython 3.12"
#define RAISES                                                                                    \
 "slows functions in which exceptions are caught 3 to 6 times until they return, before CPython " \
 "3.12"
#define WANTED "slows the functions that it is in 3 to 6 times, before CPython 3.12"
/* Opcodes, of CPython's opcode.h, 3.10 and 3.11. */
#define RETURN_VALUE 83
#define RESUME 151
#define RESUME_START 0 /* its argument where a function begins */

enum what { CALL, EXCEPTION, LINE, RETURN }; /* PyTrace_* of CPython's cpython/pystate.h */

struct trace traces[INTERPRETERS_MAX];
unsigned trace_turn;
__thread const void *trace_raised;
static unsigned forks;  /* fork_count() when a hearer came */
static unsigned inside; /* calls of hearers that have not returned, in all threads */

static struct trace *trace_of(const struct interpreter *interpreter)
{
    return &traces[interpreter_index(interpreter)];
}

bool trace_is_heard(const struct trace *self)
{
    for (size_t i = 0; i < HEARERS; i++)
        if (self->hearers[i])
            return true;
    return false;
}

/* ---- what is traced ---- */

/* What is told beyond the frames that are wanted. */
enum scope {
    SCOPE_WANTED, /* nothing */
    /* exceptions of all code; and what comes next in a frame that has one, but that may be more */
    SCOPE_RAISES,
    SCOPE_ALL, /* all of all code */
};

static bool has_scope(const struct trace *self, enum scope wanted)
{
    const unsigned raises = HEAR_BIT(HEAR_RAISE) | HEAR_BIT(HEAR_HANDLED) | HEAR_BIT(HEAR_UNWIND);

    for (size_t i = 0; i < HEARERS; i++) {
        enum scope scope = self->hidden[i] || self->asked[i] & ~raises ? SCOPE_ALL
                           : self->asked[i]                            ? SCOPE_RAISES
                                                                       : SCOPE_WANTED;
        if (self->hearers[i] && scope == wanted)
            return true;
    }
    return false;
}

/* A hearer is told of code that may be new, and of all that is defined in it. */
static void load(struct trace *self, const struct hearer *hearer, PyObject *code)
{
    self->loading = true;
    self->found = false;
    hearer->code_made(self->interpreter, code, true);
    self->loading = false;
    if (self->found)
        trace_arrange(self);
}

static enum hear_interest interest_of(struct trace *self, enum hearer_id id, PyThreadState *state,
                                      PyObject *code, bool entered)
{
    const struct hearer *hearer = self->hearers[id];

    if (!hearer || !hearer->wants)
        return HEAR_NEVER;
    enum hear_interest interest = hearer->wants(self->interpreter, state, code);
    if (interest != HEAR_NEVER || !entered || !hearer->code_made || self->loading)
        return interest;
    load(self, hearer, code);
    return hearer->wants(self->interpreter, state, code);
}

enum hear_interest trace_wanted(struct trace *self, PyThreadState *state, PyObject *code,
                                bool entered)
{
    enum hear_interest most = HEAR_NEVER;

    for (enum hearer_id id = 0; id < HEARERS; id++) {
        enum hear_interest interest = interest_of(self, id, state, code, entered);
        most = interest > most ? interest : most;
    }
    return most;
}

static bool is_wanted(struct trace *self, PyThreadState *state, PyFrameObject *frame)
{
    _cleanup_unref_ PyObject *code = (PyObject *)PyFrame_GetCode(frame);
    return trace_wanted(self, state, code, false) == HEAR_NOW;
}

/* In these versions whoever makes an object, as frames are from 3.11 on, may have to run the cyclic
 * collector, and that runs anything. */
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

static bool turn_new_on(PyThreadState *state, void *unused)
{
    if (own_thread_is(state) || trace_fields_is_others(state))
        return true;
    bool known = trace_fields_is_on(state);
    trace_fields_on(state);
    return !known;
}

/* Threads that are new only: they come first, before those that are traced already. If that can't
 * be looked at now, it is at the next call. */
static void trace_new(struct trace *self)
{
    const PyThreadState *newest = python.thread_first(self->interpreter->state);
    if (thread_states_each_now(self->interpreter->state, turn_new_on, NULL) == 0)
        self->newest = newest;
}

struct arranging {
    const struct trace *self;
    /* those that are to be traced, newest first, as all thread states are */
    const struct thread_seen *kept;
    size_t count;
    unsigned others;
};

static bool is_kept(struct arranging *arranging, const PyThreadState *state)
{
    uint64_t id = PyThreadState_GetID((PyThreadState *)state);

    while (arranging->count && arranging->kept->id > id) {
        arranging->kept++;
        arranging->count--;
    }
    return arranging->count && arranging->kept->id == id;
}

static bool arrange_thread(PyThreadState *state, void *arg)
{
    struct arranging *arranging = arg;
    const struct trace *self = arranging->self;

    arranging->others += trace_fields_is_others(state);
    if (own_thread_is(state))
        return true;
    if (self->everywhere || is_kept(arranging, state))
        trace_fields_on(state);
    else
        trace_fields_rest(state, self->raises);
    return true;
}

/* Leaves those threads in which a frame is wanted. A state whose thread has frames can't go
 * meanwhile: that thread wants the GIL for its end. */
static size_t keep_wanted(struct trace *self, struct thread_seen *all, size_t count)
{
    size_t kept = 0;

    for (size_t i = 0; i < count; i++) {
        PyFrameObject *frame = all[i].frame;
        all[i].frame = NULL;
        if (trace_keeps(self, all[i].state, frame))
            all[kept++] = all[i];
    }
    return kept;
}

static int arrange_threads(struct trace *self)
{
    PyInterpreterState *interpreter = self->interpreter->state;
    struct thread_seen *all = NULL;
    size_t count = 0;

    int r = self->everywhere ? 0 : thread_states_all(interpreter, &all, &count);
    if (r < 0)
        return r;
    struct arranging arranging = {.self = self,
                                  .kept = all,
                                  .count = keep_wanted(self, all, count)};
    const PyThreadState *newest = python.thread_first(interpreter);
    r = thread_states_each(interpreter, arrange_thread, &arranging);
    thread_states_drop(all, 0);
    if (r < 0)
        return r;
    self->newest = newest;
    return (int)arranging.others;
}

int trace_arrange(struct trace *self)
{
    bool heard = trace_is_heard(self);

    trace_turn++;
    self->everywhere = heard &&
                       (has_scope(self, SCOPE_ALL) || self->deep || trace_enter_begin(self) < 0);
    self->raises = has_scope(self, SCOPE_RAISES);
    if (!heard || self->everywhere)
        trace_enter_end(self);
    int r = arrange_threads(self);
    self->late = r < 0;
    return r;
}

/* ---- the trace function ---- */

/* The struct trace of the calling thread, if somebody is interested and this is no child after
 * fork; else NULL. */
static struct trace *find_here(void)
{
    const PyInterpreterState *here = PyInterpreterState_Get();

    for (size_t i = 0; i < INTERPRETERS_MAX && forks == fork_count(); i++) {
        const struct interpreter *interpreter = &interpreters[i];
        bool ended = i > 0 && interpreter->closed; /* the main one's end is worth hearing of */
        if (interpreter->state == here && !ended && trace_is_heard(&traces[i]))
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

/* ---- what is told ---- */

/* A thread's exception that is under way, and the frame that it was last in; neither is held. */
static __thread struct {
    PyObject *exception;
    PyFrameObject *frame;
    bool handled;
} pending;

/* What a hearer does may make others come and go. */
/* Each hearer is told the line where the frame is then: where an earlier one held the thread, it
 * may have jumped. */
static bool tell_of(const struct trace *self, enum hear_event event, struct heard *heard)
{
    bool good = true;

    heard->event = event;
    for (size_t i = 0; i < HEARERS && good; i++) {
        if (!self->hearers[i] || !self->hearers[i]->on[event])
            continue;
        if (event == HEAR_LINE)
            heard->line = PyFrame_GetLineNumber(heard->frame);
        good = self->hearers[i]->on[event](self->interpreter, heard) != HEAR_RAISED;
    }
    return good;
}

static bool is_heard(const struct trace *self, enum hear_event event)
{
    for (size_t i = 0; i < HEARERS; i++)
        if (self->hearers[i] && self->hearers[i]->on[event])
            return true;
    return false;
}

static bool tell_raise(const struct trace *self, PyObject *arg, struct heard *heard)
{
    PyObject *traceback = PyTuple_GetItem(arg, 2); /* borrowed, as what follows */

    heard->value = PyTuple_GetItem(arg, 1);
    heard->traceback = traceback == Py_None ? NULL : traceback;
    PyErr_Clear();
    if (!heard->value || !PyExceptionInstance_Check(heard->value))
        return true;
    if (is_heard(self, HEAR_HANDLED)) {
        pending.exception = heard->value;
        pending.frame = heard->frame;
        pending.handled = false;
    }
    return tell_of(self, HEAR_RAISE, heard);
}

/* Tells of a line. Where an exception was in the frame, a handler begins: the exception may go on
 * from there, which is no event, and leave the frame. */
static bool tell_line(const struct trace *self, struct heard *heard)
{
    if (pending.frame == heard->frame && !pending.handled) {
        pending.handled = true;
        heard->value = pending.exception;
        if (!tell_of(self, HEAR_HANDLED, heard))
            return false;
        heard->value = NULL;
    }
    return tell_of(self, HEAR_LINE, heard);
}

static bool tell_unwind(const struct trace *self, struct heard *heard)
{
    if (pending.frame == heard->frame) {
        heard->value = pending.exception;
        pending.frame = NULL;
    }
    return tell_of(self, HEAR_UNWIND, heard);
}

/* The instruction that a frame is at, with its argument; -1: it is before its first one. */
static int instruction_in(PyFrameObject *frame, PyObject *code)
{
    _cleanup_unref_ PyObject *lasti = PyObject_GetAttrString((PyObject *)frame, "f_lasti");
    _cleanup_unref_ PyObject *bytes = PyObject_GetAttrString(code, "co_code");
    long at = lasti ? PyLong_AsLong(lasti) : -1;
    const unsigned char *all = bytes ? (unsigned char *)PyBytes_AsString(bytes) : NULL;

    PyErr_Clear();
    return all && at >= 0 && at + 1 < PyBytes_Size(bytes) ? all[at] | all[at + 1] << 8 : -1;
}

/* Generators and coroutines say that they are called, and return, whenever they go on and give up
 * control. */
static bool is_generator(PyObject *code)
{
    return trace_enter_flags(code) & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR);
}

static bool is_start(PyFrameObject *frame, PyObject *code)
{
    if (!is_generator(code))
        return true;
    int at = instruction_in(frame, code);
    return python.version < 0x030b ? at < 0 : at == (RESUME | RESUME_START << 8);
}

static bool is_return(PyFrameObject *frame, PyObject *code)
{
    return !is_generator(code) || (instruction_in(frame, code) & 0xff) == RETURN_VALUE;
}

static bool tell_call(const struct trace *self, struct heard *heard)
{
    if (!is_heard(self, HEAR_START) && !is_heard(self, HEAR_RESUME))
        return true;
    return tell_of(self, is_start(heard->frame, heard->code) ? HEAR_START : HEAR_RESUME, heard);
}

static bool tell_return(const struct trace *self, PyObject *value, struct heard *heard)
{
    if (!is_heard(self, HEAR_RETURN) && !is_heard(self, HEAR_YIELD))
        return true;
    heard->value = value;
    return tell_of(self, is_return(heard->frame, heard->code) ? HEAR_RETURN : HEAR_YIELD, heard);
}

static bool tell_what(const struct trace *self, PyFrameObject *frame, int what, PyObject *arg)
{
    _cleanup_unref_ PyObject *code = (PyObject *)PyFrame_GetCode(frame);
    struct heard heard = {.frame = frame, .code = code};

    switch (what) {
    case CALL: return tell_call(self, &heard);
    case LINE: return tell_line(self, &heard);
    case EXCEPTION: return tell_raise(self, arg, &heard);
    case RETURN: return arg ? tell_return(self, arg, &heard) : tell_unwind(self, &heard);
    default: return true;
    }
}

/* Tells of an event. Where a hearer runs code, the frames of that have turned tracing off: it is
 * turned on again. */
static int tell(const struct trace *self, PyFrameObject *frame, int what, PyObject *arg)
{
    unsigned before = trace_turn;

    inside++;
    bool good = tell_what(self, frame, what, arg);
    inside--;
    if (before == trace_turn)
        trace_fields_on(PyThreadState_Get());
    return good ? 0 : -1;
}

/* A frame is entered, whose code may have been loaded only now: asks what hearers want of it. */
static void note_entry(struct trace *self, PyThreadState *state, PyFrameObject *frame)
{
    _cleanup_unref_ PyObject *code = (PyObject *)PyFrame_GetCode(frame);
    trace_enter_wanted(self, state, code);
}

static int trace(PyObject *object, PyFrameObject *frame, int what, PyObject *arg)
{
    struct trace *self = find_here();
    PyThreadState *state = PyThreadState_Get();

    if (!self) { /* the thread runs as fast as ever */
        trace_fields_rest(state, false);
        return 0;
    }
    if (what == EXCEPTION)
        trace_raised = frame;
    if (self->everywhere) {
        /* a new thread's state may be where the newest one's was that ended */
        if (what == CALL || python.thread_first(self->interpreter->state) != self->newest)
            trace_new(self);
        if (what == CALL)
            note_entry(self, state, frame);
    } else if (!self->raises && !is_wanted(self, state, frame)) {
        if (!stays(self, state, frame))
            trace_fields_rest(state, false);
        return 0;
    }
    return tell(self, frame, what, arg);
}

/* ---- on and off ---- */

static void say(const struct trace *self, int others, char words[PROTO_WORDS_MAX])
{
    const char *slows = self->everywhere ? EVERYWHERE : self->raises ? RAISES : WANTED;

    if (others)
        snprintf(words, PROTO_WORDS_MAX,
                 "%s; not seen: %d threads that have a trace function of their own", slows, others);
    else
        snprintf(words, PROTO_WORDS_MAX, "%s", slows);
}

void trace_learn(void) { (void)trace_fields_bind(trace, own_thread_self()); }

int trace_begin(struct interpreter *interpreter, const struct hearer *hearer, unsigned everywhere,
                char words[PROTO_WORDS_MAX])
{
    struct trace *self = trace_of(interpreter);

    int r = trace_fields_bind(trace, own_thread_self());
    if (r < 0)
        return r;
    forks = fork_count();
    self->interpreter = interpreter;
    self->hearers[hearer->id] = hearer;
    self->asked[hearer->id] = everywhere;
    r = trace_arrange(self);
    if (r < 0) {
        snprintf(words, PROTO_WORDS_MAX, "%s", thread_states_words(r));
        trace_end(interpreter, hearer);
        return r;
    }
    say(self, r, words);
    return 0;
}

/* What specialized instructions of 3.11 call: they know no frame evaluation function. */
static bool is_hidden(PyObject *code)
{
    _cleanup_unref_ PyObject *name =
        python.version >= 0x030b ? PyObject_GetAttrString(code, "co_name") : NULL;
    PyErr_Clear();
    return name && PyUnicode_CompareWithASCIIString(name, "__getitem__") == 0;
}

void trace_code(struct interpreter *interpreter, const struct hearer *hearer, PyObject *code,
                unsigned events)
{
    struct trace *self = trace_of(interpreter);

    self->found = true;
    self->hidden[hearer->id] = self->hidden[hearer->id] || (events && is_hidden(code));
}

void trace_again(struct interpreter *interpreter)
{
    struct trace *self = trace_of(interpreter);

    if (trace_is_heard(self))
        trace_arrange(self);
}

void trace_end(struct interpreter *interpreter, const struct hearer *hearer)
{
    struct trace *self = trace_of(interpreter);

    self->hidden[hearer->id] = false;
    if (!self->hearers[hearer->id])
        return;
    self->hearers[hearer->id] = NULL;
    self->deep = self->deep && trace_is_heard(self);
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

bool trace_remains(void)
{
    for (size_t i = 0; i < INTERPRETERS_MAX; i++)
        if (traces[i].late)
            return true;
    return inside || trace_enter_remains();
}

void trace_forget(void)
{
    trace_turn++;
    for (size_t i = 0; i < INTERPRETERS_MAX; i++) {
        trace_enter_end(&traces[i]);
        traces[i] = (struct trace){.interpreter = traces[i].interpreter};
    }
}
