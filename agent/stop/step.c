#include "agent/cpython/own_code.h"
#include "agent/cpython/thread_states.h"
#include "agent/interpreter/own_threads.h"
#include "agent/record/recorder.h"
#include "agent/stop/hold.h"
#include "agent/stop/steps.h"
#include "agent/stop/stop_table.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define STEPS_MAX 65536u /* threads of an interpreter that step */

static struct steps steps[INTERPRETERS_MAX];
static unsigned turn;   /* of step_cancel() */
static bool any_here;   /* a step was one that lives as long as an open file */
static uint64_t tidied; /* so many files were closed when those steps were last given up */

struct steps *steps_of(const struct interpreter *interpreter)
{
    return &steps[interpreter_index(interpreter)];
}

void step_cancel(void)
{
    __atomic_add_fetch(&turn, 1, __ATOMIC_RELEASE);
    pause_table_clear(0);
}

bool steps_is_cancelled(const struct step *step)
{
    return step->turn != __atomic_load_n(&turn, __ATOMIC_ACQUIRE) || hold_is_released(step->here);
}

bool step_release(uint64_t number)
{
    if (number - __atomic_load_n(&tidied, __ATOMIC_RELAXED) >= HOLD_RELEASED_MAX)
        step_cancel(); /* nobody knows any more which they were */
    return __atomic_load_n(&any_here, __ATOMIC_RELAXED);
}

uint64_t steps_own_thread(void) { return PyThreadState_GetID(PyThreadState_Get()); }

struct step *steps_find(struct steps *self, uint64_t thread)
{
    for (size_t i = 0; i < self->count; i++)
        if (self->all[i].thread == thread)
            return &self->all[i];
    return NULL;
}

/* ---- coming and going ---- */

/* From now on its thread is looked at in this code object, NULL: in none. */
void steps_look_at(struct interpreter *interpreter, struct step *step, PyObject *code)
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
    steps_look_at(interpreter, step, code);
    Py_DecRef(before);
}

/* Takes it out; what it holds is the caller's to give up, which may run code of the program. */
struct step steps_take_out(struct interpreter *interpreter, struct step *step)
{
    struct steps *self = steps_of(interpreter);
    struct step taken = *step;

    *step = self->all[--self->count];
    if (taken.paused)
        pause_table_remove(taken.paused);
    if (taken.code)
        steps_watch(interpreter, taken.code);
    if (taken.caller)
        steps_watch(interpreter, taken.caller);
    return taken;
}

void steps_drop(struct step *taken)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    Py_DecRef(taken->frame);
    Py_DecRef(taken->code);
    Py_DecRef(taken->caller);
    Py_DecRef(taken->returned);
    PyErr_Restore(type, value, traceback);
}

static void drop(struct interpreter *interpreter, struct step *step)
{
    struct step taken = steps_take_out(interpreter, step);
    steps_drop(&taken);
}

PyObject *steps_returned(struct step *step, PyObject *value)
{
    PyObject *before = step->returned;

    Py_IncRef(value);
    step->returned = value;
    return before;
}

/* Drops those that were cancelled, and those whose thread has ended. */
void steps_sweep(struct interpreter *interpreter)
{
    struct steps *self = steps_of(interpreter);

    for (size_t i = self->count; i-- > 0;)
        if (i < self->count && (steps_is_cancelled(&self->all[i]) ||
                                !thread_states_has(interpreter->state, self->all[i].thread)))
            drop(interpreter, &self->all[i]);
}

/* In the place of the one that the thread has. */
static int add(struct interpreter *interpreter, const struct step *step)
{
    struct steps *self = steps_of(interpreter);
    struct step *there = steps_find(self, step->thread);

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
    if (step->here)
        __atomic_store_n(&any_here, true, __ATOMIC_RELAXED);
    if (step->paused)
        pause_table_add(step->paused, step->here);
    self->all[self->count] = *step;
    self->all[self->count++].turn = __atomic_load_n(&turn, __ATOMIC_ACQUIRE);
    return 0;
}

/* The nearest of a frame's callers that a step may stop in; new, with its code. NULL: there is
 * none. */
static PyObject *caller_of(const struct step *step, PyFrameObject *frame, PyObject **code)
{
    PyObject *back = (PyObject *)python.frame_back(frame);

    *code = back ? (PyObject *)PyFrame_GetCode((PyFrameObject *)back) : NULL;
    while (step->own && back && !own_code_is(*code)) {
        PyObject *next = (PyObject *)python.frame_back((PyFrameObject *)back);
        Py_DecRef(*code);
        Py_DecRef(back);
        back = next;
        *code = back ? (PyObject *)PyFrame_GetCode((PyFrameObject *)back) : NULL;
    }
    return back;
}

void steps_follow(struct interpreter *interpreter, struct step *step, PyFrameObject *frame)
{
    _cleanup_unref_ PyObject *code = NULL;
    _cleanup_unref_ PyObject *back = caller_of(step, frame, &code);

    step->until = 0;
    if (step->verb == THREAD_STEP) {
        steps_look_at(interpreter, step, code);
    } else if (back) {
        step->verb = THREAD_NEXT;
        wait_in(interpreter, step, (PyFrameObject *)back);
    } else {
        drop(interpreter, step);
    }
}

/* ---- orders ---- */

/* Has the events come that a new one needs, or does without it. */
static int begin(struct interpreter *interpreter, uint64_t thread, char words[PROTO_WORDS_MAX])
{
    int r = steps_hear(interpreter, words);
    struct step *step = r < 0 ? steps_find(steps_of(interpreter), thread) : NULL;

    if (step)
        drop(interpreter, step);
    return r;
}

int step_from(struct interpreter *interpreter, const struct step_place *place,
              enum thread_verb verb, int line, uint64_t for_ns, char words[PROTO_WORDS_MAX])
{
    const struct step new = {.thread = steps_own_thread(),
                             .verb = verb == THREAD_STEP_OWN ? THREAD_STEP
                                     : verb == THREAD_UNTIL  ? THREAD_NEXT
                                                             : verb,
                             .own = verb == THREAD_STEP_OWN,
                             .until = verb == THREAD_UNTIL ? line : 0,
                             .why = STOP_STEP,
                             .for_ns = for_ns,
                             .here = place->here,
                             .skip = place->skip,
                             .skip_frame = place->frame};

    steps_sweep(interpreter);
    int r = add(interpreter, &new);
    if (r < 0)
        return r;
    struct step *step = steps_find(steps_of(interpreter), new.thread);
    if (new.verb == THREAD_STEP) {
        _cleanup_unref_ PyObject *code = (PyObject *)PyFrame_GetCode(place->frame);
        steps_look_at(interpreter, step, code);
    } else {
        wait_in(interpreter, step, place->frame);
    }
    if (place->returning)
        (void)steps_returned(step, place->value); /* it is new: nothing was there */
    if (place->returning)
        steps_follow(interpreter, step, place->frame);
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

int step_stop_soon(struct interpreter *interpreter, uint64_t thread, PyFrameObject *frame,
                   uint32_t id, uint64_t for_ns, uint64_t here)
{
    char words[PROTO_WORDS_MAX];
    const struct step new = {.thread = thread,
                             .verb = THREAD_STEP,
                             .why = STOP_WATCH,
                             .id = id,
                             .for_ns = for_ns,
                             .here = here};
    _cleanup_unref_ PyObject *code = (PyObject *)PyFrame_GetCode(frame);

    steps_sweep(interpreter);
    int r = add(interpreter, &new);
    if (r < 0)
        return r;
    struct step *step = steps_find(steps_of(interpreter), new.thread);
    steps_look_at(interpreter, step, code);
    watch_caller(interpreter, step, frame);
    return begin(interpreter, new.thread, words);
}

static int pause_one(struct interpreter *interpreter, const struct thread_seen *seen,
                     uint64_t for_ns, uint64_t here)
{
    const struct step new = {.thread = seen->id,
                             .paused = seen->ident,
                             .verb = THREAD_STEP,
                             .why = STOP_PAUSE,
                             .for_ns = for_ns,
                             .here = here};

    if (own_thread_is(seen->state) || hold_has_state(new.thread))
        return 0;
    int r = add(interpreter, &new);
    if (r < 0)
        return r;
    _cleanup_unref_ PyObject *code = seen->frame ? (PyObject *)PyFrame_GetCode(seen->frame) : NULL;
    steps_look_at(interpreter, steps_find(steps_of(interpreter), new.thread), code);
    return 0;
}

int step_pause(struct interpreter *interpreter, uint64_t thread, uint64_t for_ns, uint64_t here,
               size_t *found, char words[PROTO_WORDS_MAX])
{
    struct thread_seen *all;
    size_t count;

    steps_sweep(interpreter);
    int r = thread_states_all(interpreter->state, &all, &count);
    if (r < 0) {
        snprintf(words, PROTO_WORDS_MAX, "%s", thread_states_words(r));
        return r;
    }
    *found = 0;
    for (size_t i = 0; i < count && r == 0; i++)
        if (!thread || all[i].ident == thread) {
            r = pause_one(interpreter, &all[i], for_ns, here);
            ++*found;
        }
    thread_states_drop(all, count);
    int heard = steps_hear(interpreter, words);
    if (heard < 0)
        step_leave(interpreter);
    return r < 0 ? r : heard;
}

void step_removed(struct interpreter *interpreter, uint32_t id)
{
    char words[PROTO_WORDS_MAX];
    struct steps *self = steps_of(interpreter);
    bool any = false;

    for (size_t i = self->count; i-- > 0;) {
        if (i >= self->count || self->all[i].id != id)
            continue;
        drop(interpreter, &self->all[i]);
        any = true;
    }
    if (any)
        steps_hear(interpreter, words);
}

static void tidy(struct interpreter *interpreter, void *unused)
{
    char words[PROTO_WORDS_MAX];

    steps_sweep(interpreter);
    steps_hear(interpreter, words);
}

void step_tidy(struct interpreter *interpreter)
{
    uint64_t count = hold_released();

    tidy(interpreter, NULL);
    if (interpreter_each_other(tidy, NULL))
        __atomic_store_n(&tidied, count, __ATOMIC_RELAXED);
}

bool step_end(struct interpreter *interpreter)
{
    char words[PROTO_WORDS_MAX];
    struct step *step = steps_find(steps_of(interpreter), steps_own_thread());

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
