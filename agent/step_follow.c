/* What a thread that steps does, and where that ends. */
#include "agent/steps.h"

#include "agent/hit.h"
#include "agent/park.h"
#include "agent/recorder.h"

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

    struct step taken = steps_take_out(interpreter, step);
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
    struct step *step = steps_find(self, steps_own_thread());

    if (step ? !steps_is_cancelled(step) : self->count > 0)
        return step;
    steps_sweep(interpreter);
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
    steps_look_at(interpreter, step, code);
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
    steps_follow(interpreter, step, frame);
    return true;
}
