/* What a thread that steps does, as that is heard, and where the step ends. */
#include "agent/stop/steps.h"

#include "agent/cpython/own_code.h"
#include "agent/cpython/statement.h"
#include "agent/monitor/hear.h"
#include "agent/stop/stop_row.h"

#include <stdio.h>

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

    struct step taken = steps_take_out(interpreter, step);
    steps_hear(interpreter, words);
    Py_IncRef((PyObject *)where->frame);
    Py_IncRef(where->value);
    hold_inside(1);
    bool fine = !where->frame || hold(interpreter, &taken, where);
    PyErr_Fetch(&type, &value, &traceback);
    Py_DecRef(where->value);
    Py_DecRef((PyObject *)where->frame);
    steps_drop(&taken);
    PyErr_Restore(type, value, traceback);
    hold_inside(-1);
    return fine;
}

/* The calling thread's, if it is still wanted. */
static struct step *find_own(struct interpreter *interpreter)
{
    char words[PROTO_WORDS_MAX];
    struct steps *self = steps_of(interpreter);
    struct step *step = steps_find(self, steps_own_thread());

    if (step ? !steps_is_cancelled(step) : self->count > 0)
        return step;
    steps_sweep(interpreter);
    steps_hear(interpreter, words);
    return NULL;
}

/* ---- what happens ---- */

/* Whether all of it is one line: then CPython 3.12 and later may say that it is entered,
 * but not that the line begins. */
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

    if (!step || step->verb != THREAD_STEP || (step->own && !own_code_is(code)))
        return true;
    steps_look_at(interpreter, step, code);
    if (heard->event != HEAR_START || python.version < 0x030c || !is_one_line(code))
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
    if (step->own && !own_code_is(heard->code))
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
    PyObject *before = heard->event == HEAR_YIELD ? NULL : steps_returned(step, value);
    steps_follow(interpreter, step, frame);
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

/* Where no step wants all code. */
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

int steps_hear(struct interpreter *interpreter, char words[PROTO_WORDS_MAX])
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

void steps_watch(struct interpreter *interpreter, PyObject *code)
{
    const struct steps *self = steps_of(interpreter);
    size_t uses = 0;

    if (!self->hears)
        return; /* steps_hear() follows */
    for (size_t i = 0; i < self->count; i++)
        uses += (self->all[i].code == code) + (self->all[i].caller == code);
    if (uses < 2) /* else it is watched, and stays so */
        hear_code(interpreter, &hearer, code, uses ? IN_CODE : 0);
    PyErr_Clear();
    hear_again(interpreter);
}
