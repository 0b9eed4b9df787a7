#include "agent/steps.h"

#include "agent/agent.h"
#include "agent/hit.h"
#include "agent/park.h"
#include "agent/recorder.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define STEPS_MAX 65536u /* threads of an interpreter that step */

static struct steps steps[INTERPRETERS_MAX];
static unsigned turn; /* of step_cancel() */

struct steps *steps_of(const struct interpreter *interpreter) { return &steps[interpreter - agent.interpreters]; }

void step_cancel(void) { __atomic_add_fetch(&turn, 1, __ATOMIC_RELEASE); }

static uint64_t own_thread(void) { return PyThreadState_GetID(PyThreadState_Get()); }

static struct step *find(struct steps *self, uint64_t thread)
{
    for (size_t i = 0; i < self->count; i++)
        if (self->all[i].thread == thread)
            return &self->all[i];
    return NULL;
}

/* ---- coming and going ---- */

/* From now on its thread is looked at in this code object, NULL: in none. */
static void look_at(struct interpreter *interpreter, struct step *step, PyObject *code)
{
    PyObject *before = step->code;

    if (code == before)
        return;
    Py_IncRef(code);
    step->code = code;
    if (before)
        steps_watch(interpreter, before);
    if (code)
        steps_watch(interpreter, code);
    Py_DecRef(before);
}

static void wait_in(struct interpreter *interpreter, struct step *step, PyFrameObject *frame)
{
    PyObject *before = step->frame;
    _cleanup_unref_ PyObject *code = frame ? (PyObject *)PyFrame_GetCode(frame) : NULL;

    Py_IncRef((PyObject *)frame);
    step->frame = (PyObject *)frame;
    look_at(interpreter, step, code);
    Py_DecRef(before);
}

/* Takes it out; what it holds is the caller's to give up, which may run code of the program. */
static struct step take_out(struct interpreter *interpreter, struct step *step)
{
    struct steps *self = steps_of(interpreter);
    struct step taken = *step;

    *step = self->all[--self->count];
    if (taken.code)
        steps_watch(interpreter, taken.code);
    if (taken.caller)
        steps_watch(interpreter, taken.caller);
    return taken;
}

static void drop(struct interpreter *interpreter, struct step *step)
{
    struct step taken = take_out(interpreter, step);
    Py_DecRef(taken.frame);
    Py_DecRef(taken.code);
    Py_DecRef(taken.caller);
}

static bool is_running(const struct interpreter *interpreter, uint64_t thread)
{
    PyThreadState *state = python.thread_first(interpreter->state);

    while (state && PyThreadState_GetID(state) != thread)
        state = python.thread_next(state);
    return state != NULL;
}

/* Drops those that were cancelled, and those whose thread has ended. */
static void sweep(struct interpreter *interpreter)
{
    struct steps *self = steps_of(interpreter);
    unsigned now = __atomic_load_n(&turn, __ATOMIC_ACQUIRE);

    for (size_t i = self->count; i-- > 0;)
        if (i < self->count && (self->all[i].turn != now || !is_running(interpreter, self->all[i].thread)))
            drop(interpreter, &self->all[i]);
}

/* In the place of the one that the thread has. */
static int add(struct interpreter *interpreter, const struct step *step)
{
    struct steps *self = steps_of(interpreter);
    struct step *there = find(self, step->thread);

    if (there)
        drop(interpreter, there);
    if (self->count == self->room) {
        size_t room = self->room ? 2 * self->room : 8;
        struct step *all = room <= STEPS_MAX ? realloc(self->all, room * sizeof *all) : NULL;
        if (!all)
            return -ENOMEM;
        self->all = all;
        self->room = room;
    }
    self->all[self->count] = *step;
    self->all[self->count++].turn = __atomic_load_n(&turn, __ATOMIC_ACQUIRE);
    return 0;
}

/* ---- stopping ---- */

struct where {
    PyFrameObject *frame; /* NULL: the innermost one */
    PyObject *code;
    int line;
    bool at_line;         /* at its beginning */
    PyObject *value;      /* that is returned, else NULL */
};

static bool hold(struct interpreter *interpreter, const struct step *step, const struct where *where)
{
    struct ring_ticket ticket = step->ticket;
    double resumed;
    const struct reached reached = {
        .frame = where->frame, .code = where->code, .line = where->line, .value = where->value, .why = step->why};
    const struct park park = {
        .why = step->why, .id = step->id, .for_ns = step->for_ns, .frame = where->frame, .line = where->line,
        .value = where->value, .may_jump = where->at_line};

    bool noted = step->id || hit_note(interpreter, &reached, &ticket); /* a watchpoint has its row already */
    bool fine = park_thread(interpreter, &park, &resumed);
    struct ring *ring = recorder_ring(RECORDED_HITS);
    if (noted && ring && resumed > 0)
        hits_patch_resumed(ring, &ticket, resumed);
    else if (noted && ring)
        hits_patch_stopped(ring, &ticket, 0);
    return fine;
}

/* The step ends here. */
static bool stop(struct interpreter *interpreter, struct step *step, const struct where *where)
{
    char words[PROTO_WORDS_MAX];
    PyFrameObject *innermost = where->frame ? where->frame : PyEval_GetFrame();
    struct where there = *where;
    PyObject *type, *value, *traceback;

    struct step taken = take_out(interpreter, step);
    steps_hear(interpreter, words);
    there.frame = innermost;
    Py_IncRef((PyObject *)innermost);
    Py_IncRef(there.value);
    park_inside(1);
    bool fine = !innermost || hold(interpreter, &taken, &there);
    PyErr_Fetch(&type, &value, &traceback);
    Py_DecRef(there.value);
    Py_DecRef((PyObject *)innermost);
    Py_DecRef(taken.frame);
    Py_DecRef(taken.code);
    Py_DecRef(taken.caller);
    PyErr_Restore(type, value, traceback);
    park_inside(-1);
    return fine;
}

/* The calling thread's, if it is still wanted. */
static struct step *find_own(struct interpreter *interpreter)
{
    char words[PROTO_WORDS_MAX];
    struct steps *self = steps_of(interpreter);
    struct step *step = find(self, own_thread());

    if (step ? step->turn == __atomic_load_n(&turn, __ATOMIC_ACQUIRE) : self->count > 0)
        return step;
    sweep(interpreter);
    steps_hear(interpreter, words);
    return NULL;
}

/* ---- what happens ---- */

/* Whether all of it is one line: then CPython 3.12 and later may say that it is entered, but not that the line begins. */
static bool is_one_line(PyObject *code)
{
    _cleanup_unref_ PyObject *first = PyObject_GetAttrString(code, "co_firstlineno");
    _cleanup_unref_ PyObject *lines = PyObject_CallMethod(code, "co_lines", NULL);
    long line = first ? PyLong_AsLong(first) : -1;
    bool one = line > 0 && lines;
    PyObject *entry;

    while (one && (entry = PyIter_Next(lines))) {
        PyObject *number = PyTuple_GetItem(entry, 2); /* borrowed */
        one = number == Py_None || (number && PyLong_AsLong(number) == line);
        Py_DecRef(entry);
    }
    PyErr_Clear();
    return one;
}

static int first_line(PyObject *code)
{
    _cleanup_unref_ PyObject *first = PyObject_GetAttrString(code, "co_firstlineno");
    int line = first ? (int)PyLong_AsLong(first) : 0;
    PyErr_Clear();
    return line;
}

/* Whether that is where the thread was held before. */
static bool is_skipped(const struct step *step, const PyFrameObject *frame, int line)
{
    return line == step->skip && frame == step->skip_frame;
}

bool steps_entered(struct interpreter *interpreter, PyFrameObject *frame, PyObject *code, bool is_start)
{
    struct step *step = find_own(interpreter);

    if (!step || step->verb != THREAD_STEP)
        return true;
    look_at(interpreter, step, code);
    if (!is_start || python.version < 0x030c || !is_one_line(code))
        return true;
    frame = frame ? frame : PyEval_GetFrame();
    return is_skipped(step, frame, first_line(code)) ||
           stop(interpreter, step, &(struct where){.frame = frame, .code = code, .line = first_line(code)});
}

bool steps_line(struct interpreter *interpreter, PyFrameObject *frame, PyObject *code, int line)
{
    struct step *step = find_own(interpreter);

    if (!step || step->verb == THREAD_FINISH)
        return true;
    frame = frame ? frame : PyEval_GetFrame();
    if (step->verb == THREAD_NEXT && (PyObject *)frame != step->frame)
        return true;
    bool skipped = is_skipped(step, frame, line);
    step->skip = 0;
    return skipped || stop(interpreter, step, &(struct where){.frame = frame, .code = code, .line = line, .at_line = true});
}

/* Goes on in the caller of a frame that is left. */
static void follow(struct interpreter *interpreter, struct step *step, PyFrameObject *frame)
{
    _cleanup_unref_ PyObject *back = (PyObject *)python.frame_back(frame);
    _cleanup_unref_ PyObject *code = back ? (PyObject *)PyFrame_GetCode((PyFrameObject *)back) : NULL;

    if (step->verb == THREAD_STEP) {
        look_at(interpreter, step, code);
    } else if (back) {
        step->verb = THREAD_NEXT;
        wait_in(interpreter, step, (PyFrameObject *)back);
    } else {
        drop(interpreter, step);
    }
}

bool steps_left(struct interpreter *interpreter, PyFrameObject *frame, PyObject *code, enum left how, PyObject *value)
{
    struct step *step = find_own(interpreter);

    if (!step)
        return true;
    frame = frame ? frame : PyEval_GetFrame();
    if (step->verb != THREAD_STEP && ((PyObject *)frame != step->frame || how == LEFT_YIELDED))
        return true;
    if (step->verb == THREAD_FINISH && how == LEFT_RETURNED) {
        step->why = STOP_RETURN;
        return stop(interpreter, step, &(struct where){
            .frame = frame, .code = code, .line = PyFrame_GetLineNumber(frame), .value = value});
    }
    follow(interpreter, step, frame);
    return true;
}

/* ---- orders ---- */

/* Has the events come that a new one needs, or does without it. */
static int begin(struct interpreter *interpreter, uint64_t thread, char words[PROTO_WORDS_MAX])
{
    int r = steps_hear(interpreter, words);
    struct step *step = r < 0 ? find(steps_of(interpreter), thread) : NULL;

    if (step)
        drop(interpreter, step);
    return r;
}

int step_from(struct interpreter *interpreter, const struct step_place *place, enum thread_verb verb, uint64_t for_ns,
              char words[PROTO_WORDS_MAX])
{
    const struct step new = {
        .thread = own_thread(), .verb = verb, .why = STOP_STEP, .for_ns = for_ns,
        .skip = place->skip, .skip_frame = place->frame};

    sweep(interpreter);
    int r = add(interpreter, &new);
    if (r < 0)
        return r;
    struct step *step = find(steps_of(interpreter), new.thread);
    if (verb == THREAD_STEP) {
        _cleanup_unref_ PyObject *code = (PyObject *)PyFrame_GetCode(place->frame);
        look_at(interpreter, step, code);
    } else {
        wait_in(interpreter, step, place->frame);
    }
    if (place->returning)
        follow(interpreter, step, place->frame);
    return begin(interpreter, new.thread, words);
}

/* The thread may be beyond the last event of its frame: then nothing tells that it leaves that. */
static void watch_caller(struct interpreter *interpreter, struct step *step, PyFrameObject *frame)
{
    _cleanup_unref_ PyObject *back = (PyObject *)python.frame_back(frame);

    step->caller = back ? (PyObject *)PyFrame_GetCode((PyFrameObject *)back) : NULL;
    if (step->caller)
        steps_watch(interpreter, step->caller);
}

int step_stop_soon(struct interpreter *interpreter, PyThreadState *state, PyFrameObject *frame, uint32_t id, uint64_t for_ns,
                   const struct ring_ticket *ticket)
{
    char words[PROTO_WORDS_MAX];
    const struct step new = {
        .thread = PyThreadState_GetID(state), .verb = THREAD_STEP, .why = STOP_WATCH, .id = id, .for_ns = for_ns,
        .ticket = *ticket};
    _cleanup_unref_ PyObject *code = (PyObject *)PyFrame_GetCode(frame);

    sweep(interpreter);
    int r = add(interpreter, &new);
    if (r < 0)
        return r;
    struct step *step = find(steps_of(interpreter), new.thread);
    look_at(interpreter, step, code);
    watch_caller(interpreter, step, frame);
    return begin(interpreter, new.thread, words);
}

static bool is_agents(const PyThreadState *state)
{
    for (size_t i = 0; i < PYTHON_THREADS_MAX; i++)
        if (agent.pythons[i].state == state)
            return true;
    return state == PyThreadState_Get();
}

static int pause_one(struct interpreter *interpreter, PyThreadState *state, uint64_t for_ns)
{
    const struct step new = {
        .thread = PyThreadState_GetID(state), .verb = THREAD_STEP, .why = STOP_PAUSE, .for_ns = for_ns};

    if (is_agents(state) || park_holds_state(new.thread))
        return 0;
    int r = add(interpreter, &new);
    if (r < 0)
        return r;
    _cleanup_unref_ PyObject *frame = (PyObject *)PyThreadState_GetFrame(state);
    _cleanup_unref_ PyObject *code = frame ? (PyObject *)PyFrame_GetCode((PyFrameObject *)frame) : NULL;
    look_at(interpreter, find(steps_of(interpreter), new.thread), code);
    return 0;
}

int step_pause(struct interpreter *interpreter, uint64_t for_ns, char words[PROTO_WORDS_MAX])
{
    int r = 0;

    sweep(interpreter);
    for (PyThreadState *state = python.thread_first(interpreter->state); state && r == 0; state = python.thread_next(state))
        r = pause_one(interpreter, state, for_ns);
    int heard = steps_hear(interpreter, words);
    if (heard < 0)
        step_leave(interpreter);
    return r < 0 ? r : heard;
}

bool step_end(struct interpreter *interpreter)
{
    char words[PROTO_WORDS_MAX];
    struct step *step = find(steps_of(interpreter), own_thread());

    if (!step)
        return false;
    drop(interpreter, step);
    steps_hear(interpreter, words);
    return true;
}

void step_leave(struct interpreter *interpreter)
{
    char words[PROTO_WORDS_MAX];
    struct steps *self = steps_of(interpreter);

    while (self->count)
        drop(interpreter, &self->all[self->count - 1]);
    steps_hear(interpreter, words);
    free(self->all);
    *self = (struct steps){0};
}
