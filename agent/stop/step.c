#include "agent/cpython/own_code.h"
#include "agent/cpython/statement.h"
#include "agent/cpython/thread_states.h"
#include "agent/interpreter/own_threads.h"
#include "agent/monitor/hear.h"
#include "agent/record/recorder.h"
#include "agent/stop/hold.h"
#include "agent/stop/step.h"
#include "agent/stop/stop_row.h"
#include "agent/stop/stop_table.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define STEPS_MAX 65536u /* threads of an interpreter that step */

struct step {
    uint64_t thread;       /* PyThreadState_GetID() */
    uint64_t paused;       /* of a pause: its pthread_t; else 0 */
    unsigned turn;         /* of step_cancel() */
    enum thread_verb verb; /* THREAD_STEP, in any frame, THREAD_NEXT, _FINISH or _RETURN */
    bool own;              /* of THREAD_STEP: not in libraries */
    int until;             /* of THREAD_NEXT: in `frame` from this line on; 0: at any */
    enum stop_why why;
    uint32_t id; /* of the watchpoint */
    uint64_t for_ns;
    uint64_t here;          /* of struct step_place */
    PyObject *frame;        /* owned; of all but THREAD_STEP */
    PyObject *code;         /* owned: that is watched now; NULL: none */
    PyObject *caller;       /* owned: of a watchpoint, code that is watched besides; NULL: none */
    PyObject *returned;     /* owned: of a function that it has left; NULL: nothing */
    int skip;               /* struct step_place; until it is told of a line */
    const void *skip_frame; /* no more than a number */
};

/* The steps that are under way in an interpreter, under its GIL. */
struct steps {
    struct step *all;
    size_t count, room;
    bool hears; /* events come */
};

static struct steps steps[INTERPRETERS_MAX];
static unsigned turn;   /* of step_cancel() */
static bool any_here;   /* a step was one that lives as long as an open file */
static uint64_t tidied; /* so many files were closed when those steps were last given up */

static struct steps *steps_of(const struct interpreter *interpreter)
{
    return &steps[interpreter_index(interpreter)];
}

void step_cancel(void)
{
    __atomic_add_fetch(&turn, 1, __ATOMIC_RELEASE);
    pause_table_clear(0);
}

static bool is_cancelled(const struct step *step)
{
    return step->turn != __atomic_load_n(&turn, __ATOMIC_ACQUIRE) || hold_is_released(step->here);
}

bool step_release(uint64_t number)
{
    if (number - __atomic_load_n(&tidied, __ATOMIC_RELAXED) >= HOLD_RELEASED_MAX)
        step_cancel(); /* nobody knows any more which they were */
    return __atomic_load_n(&any_here, __ATOMIC_RELAXED);
}

/* PyThreadState_GetID() of the calling thread. */
static uint64_t own_thread(void) { return PyThreadState_GetID(PyThreadState_Get()); }

/* The step of a thread; NULL: it doesn't step. */
static struct step *find(struct steps *self, uint64_t thread)
{
    for (size_t i = 0; i < self->count; i++)
        if (self->all[i].thread == thread)
            return &self->all[i];
    return NULL;
}

/* ---- coming and going ---- */

/* Has all events come that the steps need, and no others. -errno with words. No exception is set
 * afterwards. */
static int hear_for_steps(struct interpreter *interpreter, char words[PROTO_WORDS_MAX]);
/* Watches a code object from now on; or, where no step looks at it any more, no longer. */
static void watch_code(struct interpreter *interpreter, PyObject *code);

/* From now on the step's thread is looked at in this code object; NULL: in none. */
static void look_at(struct interpreter *interpreter, struct step *step, PyObject *code)
{
    PyObject *before = step->code;

    if (code == before)
        return;
    Py_IncRef(code);
    step->code = code;
    if (before)
        watch_code(interpreter, before);
    if (code)
        watch_code(interpreter, code);
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

/* Takes a step out. What it holds is the caller's to give up, which may run code of the program. */
static struct step take_out(struct interpreter *interpreter, struct step *step)
{
    struct steps *self = steps_of(interpreter);
    struct step taken = *step;

    *step = self->all[--self->count];
    if (taken.paused)
        pause_table_remove(taken.paused);
    if (taken.code)
        watch_code(interpreter, taken.code);
    if (taken.caller)
        watch_code(interpreter, taken.caller);
    return taken;
}

/* Gives up what a step held that was taken out. Runs code of the program; an exception that is set
 * stays. */
static void give_up(struct step *taken)
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
    struct step taken = take_out(interpreter, step);
    give_up(&taken);
}

/* Notes what a function returned that the step leaves; NULL: it raised. Returns what was noted
 * before: the caller's to give up, which may run code of the program. */
static PyObject *set_returned(struct step *step, PyObject *value)
{
    PyObject *before = step->returned;

    Py_IncRef(value);
    step->returned = value;
    return before;
}

/* Drops the steps that were cancelled, and those whose thread has ended. */
static void sweep(struct interpreter *interpreter)
{
    struct steps *self = steps_of(interpreter);

    for (size_t i = self->count; i-- > 0;)
        if (i < self->count && (is_cancelled(&self->all[i]) ||
                                !thread_states_has(interpreter->state, self->all[i].thread)))
            drop(interpreter, &self->all[i]);
}

/* Adds a step, in the place of the one that its thread has. */
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

/* The step goes on in the caller of a frame that is left; where there is none, it may be dropped.
 */
static void go_to_caller(struct interpreter *interpreter, struct step *step, PyFrameObject *frame)
{
    _cleanup_unref_ PyObject *code = NULL;
    _cleanup_unref_ PyObject *back = caller_of(step, frame, &code);

    step->until = 0;
    if (step->verb == THREAD_STEP) {
        look_at(interpreter, step, code);
    } else if (back) {
        step->verb = THREAD_NEXT;
        wait_in(interpreter, step, (PyFrameObject *)back);
    } else {
        drop(interpreter, step);
    }
}

/* ---- stopping ---- */

struct where {
    PyFrameObject *frame; /* NULL: there was no memory for it */
    PyObject *code;
    int line;
    enum hear_event event;
    PyObject *value; /* that is returned, else NULL */
};

static bool hold(struct interpreter *interpreter, const struct step *step,
                 const struct where *where)
{
    const struct hold hold = {.why = step->why,
                              .id = step->id,
                              .for_ns = step->for_ns,
                              .here = step->here,
                              .frame = where->frame,
                              .line = where->line,
                              .value = where->value,
                              .event = where->event,
                              .returned = where->value ? where->value : step->returned};

    return stop_hold(interpreter, &hold, where->frame, where->code, where->value);
}

/* The step ends here. */
static bool stop(struct interpreter *interpreter, struct step *step, const struct where *where)
{
    char words[PROTO_WORDS_MAX];
    PyObject *type, *value, *traceback;

    struct step taken = take_out(interpreter, step);
    hear_for_steps(interpreter, words);
    Py_IncRef((PyObject *)where->frame);
    Py_IncRef(where->value);
    hold_inside(1);
    bool fine = !where->frame || hold(interpreter, &taken, where);
    PyErr_Fetch(&type, &value, &traceback);
    Py_DecRef(where->value);
    Py_DecRef((PyObject *)where->frame);
    give_up(&taken);
    PyErr_Restore(type, value, traceback);
    hold_inside(-1);
    return fine;
}

/* The calling thread's step, if that is still wanted. */
static struct step *find_own(struct interpreter *interpreter)
{
    char words[PROTO_WORDS_MAX];
    struct steps *self = steps_of(interpreter);
    struct step *step = find(self, own_thread());

    if (step ? !is_cancelled(step) : self->count > 0)
        return step;
    sweep(interpreter);
    hear_for_steps(interpreter, words);
    return NULL;
}

/* ---- what happens ---- */

/* Whether all of a code object is on one line. */
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

static bool entered(struct interpreter *interpreter, const struct heard *heard)
{
    struct step *step = find_own(interpreter);
    PyObject *code = heard->code;

    if (!step || step->verb != THREAD_STEP || own_code_is_agents(code) ||
        (step->own && !own_code_is(code)))
        return true;
    look_at(interpreter, step, code);
    if (heard->event != HEAR_START || !hear_may_omit_line() || !is_one_line(code))
        return true;
    PyFrameObject *frame = heard_frame(heard);
    return is_skipped(step, frame, first_line(code)) ||
           stop(interpreter, step,
                &(struct where){
                    .frame = frame, .code = code, .line = first_line(code), .event = heard->event});
}

static bool at_line(struct interpreter *interpreter, const struct heard *heard, int line)
{
    struct step *step = find_own(interpreter);

    if (!step || step->verb == THREAD_FINISH || step->verb == THREAD_RETURN)
        return true;
    PyFrameObject *frame = heard_frame(heard);
    if (own_code_is_agents(heard->code) || (step->own && !own_code_is(heard->code)))
        return true;
    if (step->verb == THREAD_NEXT && ((PyObject *)frame != step->frame || line < step->until))
        return true;
    bool skipped = is_skipped(step, frame, line);
    step->skip = 0;
    return skipped ||
           stop(interpreter, step,
                &(struct where){
                    .frame = frame, .code = heard->code, .line = line, .event = heard->event});
}

/* A loop on one line begins it again. */
static enum hear_answer jumped(struct interpreter *interpreter, const struct heard *heard)
{
    int line = statement_jump(heard->code, heard->from, heard->to);

    if (!line)
        return HEAR_DISABLE;
    return at_line(interpreter, heard, line) ? HEAR_ON : HEAR_RAISED;
}

static bool left(struct interpreter *interpreter, const struct heard *heard)
{
    struct step *step = find_own(interpreter);

    if (!step)
        return true;
    PyFrameObject *frame = heard_frame(heard);
    if (step->verb != THREAD_STEP &&
        ((PyObject *)frame != step->frame || heard->event == HEAR_YIELD))
        return true;
    if (step->verb == THREAD_RETURN && heard->event == HEAR_RETURN) {
        step->why = STOP_RETURN;
        return stop(interpreter, step,
                    &(struct where){.frame = frame,
                                    .code = heard->code,
                                    .line = PyFrame_GetLineNumber(frame),
                                    .event = heard->event,
                                    .value = heard->value});
    }
    PyObject *value = heard->event == HEAR_RETURN ? heard->value : NULL;
    PyObject *before = heard->event == HEAR_YIELD ? NULL : set_returned(step, value);
    go_to_caller(interpreter, step, frame);
    Py_DecRef(before);
    return true;
}

/* ---- hearing of it ---- */

static enum hear_answer hear(struct interpreter *interpreter, const struct heard *heard)
{
    bool fine = true;

    if (!steps_of(interpreter)->hears)
        return HEAR_ON;
    switch (heard->event) {
    case HEAR_START:
    case HEAR_RESUME:
    case HEAR_THROW: fine = entered(interpreter, heard); break;
    case HEAR_LINE: fine = at_line(interpreter, heard, heard->line); break;
    case HEAR_JUMP: return jumped(interpreter, heard);
    default: fine = left(interpreter, heard); break;
    }
    return fine ? HEAR_ON : HEAR_RAISED;
}

/* What steps want of code, where none of them wants all code. */
static enum hear_interest wants(struct interpreter *interpreter, PyThreadState *state,
                                PyObject *code)
{
    const struct steps *self = steps_of(interpreter);
    enum hear_interest interest = HEAR_NEVER;

    for (size_t i = 0; i < self->count; i++)
        if (self->all[i].code == code && self->all[i].thread == PyThreadState_GetID(state))
            return HEAR_NOW;
        else if (self->all[i].code == code)
            interest = HEAR_NOT_NOW;
    return interest;
}

#define CALLS (HEAR_BIT(HEAR_START) | HEAR_BIT(HEAR_RESUME) | HEAR_BIT(HEAR_THROW))
#define IN_CODE                                                                              \
 (HEAR_BIT(HEAR_LINE) | HEAR_BIT(HEAR_JUMP) | HEAR_BIT(HEAR_RETURN) | HEAR_BIT(HEAR_YIELD) | \
  HEAR_BIT(HEAR_UNWIND))
static const struct hearer hearer = {
    .id = HEARER_STEPS,
    .purpose = "stop a thread at a line",
    .on = {[HEAR_START... HEAR_UNWIND] = hear},
    .wants = wants,
};

static int hear_for_steps(struct interpreter *interpreter, char words[PROTO_WORDS_MAX])
{
    struct steps *self = steps_of(interpreter);
    bool of_calls = false, heard = self->hears;
    int r = 0;

    words[0] = '\0';
    for (size_t i = 0; i < self->count; i++)
        of_calls = of_calls || self->all[i].verb == THREAD_STEP;
    self->hears = self->count > 0;
    if (self->hears)
        r = hear_begin(interpreter, &hearer, of_calls ? CALLS : 0, IN_CODE, words);
    else
        hear_end(interpreter, &hearer);
    for (size_t i = 0; i < self->count && (r == 1 || (r == 0 && !heard)); i++) {
        if (self->all[i].code)
            hear_code(interpreter, &hearer, self->all[i].code, IN_CODE);
        if (self->all[i].caller)
            hear_code(interpreter, &hearer, self->all[i].caller, IN_CODE);
    }
    PyErr_Clear();
    if (r < 0 && !words[0])
        snprintf(words, PROTO_WORDS_MAX, "lines can't be followed here");
    return r < 0 ? r : 0;
}

static void watch_code(struct interpreter *interpreter, PyObject *code)
{
    const struct steps *self = steps_of(interpreter);
    size_t uses = 0;

    if (!self->hears)
        return; /* hear_for_steps() follows */
    for (size_t i = 0; i < self->count; i++)
        uses += (self->all[i].code == code) + (self->all[i].caller == code);
    if (uses < 2) /* else it is watched, and stays so */
        hear_code(interpreter, &hearer, code, uses ? IN_CODE : 0);
    PyErr_Clear();
    hear_again(interpreter);
}

/* ---- orders ---- */

/* Has the events come that a new one needs, or does without it. */
static int begin(struct interpreter *interpreter, uint64_t thread, char words[PROTO_WORDS_MAX])
{
    int r = hear_for_steps(interpreter, words);
    struct step *step = r < 0 ? find(steps_of(interpreter), thread) : NULL;

    if (step)
        drop(interpreter, step);
    return r;
}

int step_from(struct interpreter *interpreter, const struct step_place *place,
              enum thread_verb verb, int line, uint64_t for_ns, char words[PROTO_WORDS_MAX])
{
    const struct step new = {.thread = own_thread(),
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

    sweep(interpreter);
    int r = add(interpreter, &new);
    if (r < 0)
        return r;
    struct step *step = find(steps_of(interpreter), new.thread);
    if (new.verb == THREAD_STEP) {
        _cleanup_unref_ PyObject *code = (PyObject *)PyFrame_GetCode(place->frame);
        look_at(interpreter, step, code);
    } else {
        wait_in(interpreter, step, place->frame);
    }
    if (place->returning)
        (void)set_returned(step, place->value); /* it is new: nothing was there */
    if (place->returning)
        go_to_caller(interpreter, step, place->frame);
    return begin(interpreter, new.thread, words);
}

/* The thread may be beyond the last event of its frame: then nothing tells that it leaves that. */
static void watch_caller(struct interpreter *interpreter, struct step *step, PyFrameObject *frame)
{
    _cleanup_unref_ PyObject *back = (PyObject *)python.frame_back(frame);

    step->caller = back ? (PyObject *)PyFrame_GetCode((PyFrameObject *)back) : NULL;
    if (step->caller)
        watch_code(interpreter, step->caller);
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

    sweep(interpreter);
    int r = add(interpreter, &new);
    if (r < 0)
        return r;
    struct step *step = find(steps_of(interpreter), new.thread);
    look_at(interpreter, step, code);
    watch_caller(interpreter, step, frame);
    return begin(interpreter, new.thread, words);
}

/* id: of the breakpoint because of which it is to stop; 0: of none. */
static int pause_one(struct interpreter *interpreter, const struct thread_seen *seen, uint32_t id,
                     uint64_t for_ns, uint64_t here)
{
    const struct step new = {.thread = seen->id,
                             .paused = seen->ident,
                             .verb = THREAD_STEP,
                             .why = STOP_PAUSE,
                             .id = id,
                             .for_ns = for_ns,
                             .here = here};

    if (own_thread_is(seen->state) || hold_has_state(new.thread))
        return 0;
    int r = add(interpreter, &new);
    if (r < 0)
        return r;
    _cleanup_unref_ PyObject *code = seen->frame ? (PyObject *)PyFrame_GetCode(seen->frame) : NULL;
    look_at(interpreter, find(steps_of(interpreter), new.thread), code);
    return 0;
}

/* thread: as of step_pause(); but: PyThreadState_GetID() of one that isn't meant, 0: none. */
static int pause_them(struct interpreter *interpreter, uint64_t thread, uint64_t but, uint32_t id,
                      uint64_t for_ns, uint64_t here, size_t *found, char words[PROTO_WORDS_MAX])
{
    struct thread_seen *all;
    size_t count;

    sweep(interpreter);
    int r = thread_states_all(interpreter->state, &all, &count);
    if (r < 0) {
        snprintf(words, PROTO_WORDS_MAX, "%s", thread_states_words(r));
        return r;
    }
    *found = 0;
    for (size_t i = 0; i < count && r == 0; i++)
        if ((!thread || all[i].ident == thread) && all[i].id != but) {
            r = pause_one(interpreter, &all[i], id, for_ns, here);
            ++*found;
        }
    thread_states_drop(all, count);
    int heard = hear_for_steps(interpreter, words);
    if (heard < 0)
        step_leave(interpreter);
    return r < 0 ? r : heard;
}

int step_pause(struct interpreter *interpreter, uint64_t thread, uint64_t for_ns, uint64_t here,
               size_t *found, char words[PROTO_WORDS_MAX])
{
    return pause_them(interpreter, thread, 0, 0, for_ns, here, found, words);
}

int step_pause_others(struct interpreter *interpreter, uint32_t id, uint64_t for_ns, uint64_t here)
{
    char words[PROTO_WORDS_MAX];
    size_t found;

    return pause_them(interpreter, 0, own_thread(), id, for_ns, here, &found, words);
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
        hear_for_steps(interpreter, words);
}

static void tidy(struct interpreter *interpreter, void *unused)
{
    char words[PROTO_WORDS_MAX];

    sweep(interpreter);
    hear_for_steps(interpreter, words);
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
    struct step *step = find(steps_of(interpreter), own_thread());

    if (!step)
        return false;
    drop(interpreter, step);
    hear_for_steps(interpreter, words);
    return true;
}

void step_leave(struct interpreter *interpreter)
{
    char words[PROTO_WORDS_MAX];
    struct steps *self = steps_of(interpreter);

    while (self->count)
        drop(interpreter, &self->all[self->count - 1]);
    hear_for_steps(interpreter, words);
    free(self->all);
    *self = (struct steps){0};
}
