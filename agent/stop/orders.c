#include "agent/stop/orders.h"

#include "agent/cpython/exception_words.h"
#include "agent/stop/hold.h"
#include "agent/stop/step.h"
#include "agent/wire/refuse.h"

#include <errno.h>
#include <stdio.h>

/* ---- jump ---- */

/* The filters that warnings go through, new; NULL: they can't be had. */
static PyObject *warning_filters(void)
{
    _cleanup_unref_ PyObject *name = PyUnicode_FromString("warnings");
    _cleanup_unref_ PyObject *module = name ? PyImport_GetModule(name) : NULL;

    if (!module)
        module =
            PyImport_ImportModule("_warnings"); /* which is built in: its filters are used then */
    PyObject *filters = module ? PyObject_GetAttrString(module, "filters") : NULL;
    PyErr_Clear();
    if (filters && !PyList_Check(filters))
        python_clear(&filters);
    return filters;
}

static void take_out(PyObject *filters, const PyObject *entry)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    for (Py_ssize_t i = 0; i < PyList_Size(filters); i++)
        if (PyList_GetItem(filters, i) == entry) {
            PySequence_DelItem(filters, i);
            break;
        }
    PyErr_Restore(type, value, traceback);
}

/* From 3.12 on CPython warns that it binds variables to None that have no value yet. That isn't
 * meant for the program, which may take warnings for errors. */
static int set_number(PyObject *frame, PyObject *number)
{
    _cleanup_unref_ PyObject *filters = warning_filters();
    _cleanup_unref_ PyObject *entry =
        Py_BuildValue("(sOOOi)", "ignore", Py_None, PyExc_RuntimeWarning, Py_None, 0);

    bool quiet = filters && entry && PyList_Insert(filters, 0, entry) == 0;
    PyErr_Clear();
    int r = PyObject_SetAttrString(frame, "f_lineno", number);
    if (quiet)
        take_out(filters, entry);
    return r;
}

/* Before 3.12 only a frame with a trace function of its own may; which that is doesn't matter. */
static int set_line(PyObject *frame, int line)
{
    bool traced = python.version < 0x030c;
    PyObject *type, *value, *traceback;
    _cleanup_unref_ PyObject *number = PyLong_FromLong(line);

    if (!number || (traced && PyObject_SetAttrString(frame, "f_trace", number) < 0))
        return -1;
    int r = set_number(frame, number);
    if (traced) {
        PyErr_Fetch(&type, &value, &traceback);
        if (PyObject_SetAttrString(frame, "f_trace", Py_None) < 0)
            PyErr_Clear();
        PyErr_Restore(type, value, traceback);
    }
    return r;
}

/* Before 3.14 a jump from a yield leaves what the program goes on with in the wrong place: it
 * crashes, or fails, once the generator goes on. */
static const char *why_no_jump(const struct hold *hold)
{
    if (!hold->frame)
        return "an exception holds the thread: it can only go on";
    switch (hold->event) {
    case HEAR_LINE:
    case HEAR_JUMP: return NULL;
    case HEAR_YIELD:
    case HEAR_RESUME:
        return python.version >= 0x030e
                   ? NULL
                   : "the thread is at a yield, from which CPython can't jump before 3.14: "
                     "step to a line";
    case HEAR_RETURN:
        return "the function is returning: CPython jumps from the beginning of a line only";
    case HEAR_START:
        return "the function is only being entered: CPython jumps from the beginning of a line "
               "only";
    case HEAR_EVENTS:
        return "the thread is in a call: CPython jumps from the beginning of a line only";
    default: return "an exception is on its way: CPython jumps from the beginning of a line only";
    }
}

static int jump(const struct hold *hold, int line, char words[PROTO_WORDS_MAX])
{
    const char *why = why_no_jump(hold);

    if (why)
        return refuse(EINVAL, words, "%s", why);
    if (set_line((PyObject *)hold->frame, line) < 0) {
        exception_words(words, PROTO_WORDS_MAX);
        return -EINVAL;
    }
    /* of a line without code it is the next one that has some */
    hold_jumped(PyFrame_GetLineNumber(hold->frame));
    return 0;
}

/* ---- step, next, finish and the like ---- */

static int step(struct interpreter *interpreter, const struct hold *hold,
                const struct proto_thread *order, char words[PROTO_WORDS_MAX])
{
    static const char *const names[] = {
        [THREAD_STEP] = "step",     [THREAD_NEXT] = "next",   [THREAD_FINISH] = "finish",
        [THREAD_RETURN] = "return", [THREAD_UNTIL] = "until", [THREAD_STEP_OWN] = "step"};
    bool returns = hold->event == HEAR_RETURN;
    const struct step_place place = {.frame = hold->frame,
                                     .returning = returns || hold->event == HEAR_UNWIND,
                                     .skip = hold_told_line(),
                                     .value = returns ? hold->value : NULL,
                                     .here = order->here ? order->here : hold->here};
    const int line = order->line ? order->line : hold->line + 1;

    if (!hold->frame)
        return refuse(EINVAL, words, "an exception holds the thread: it can only go on");
    int r = step_from(interpreter, &place, order->verb, line, hold->for_ns, words);
    if (r == -ENOMEM)
        return refuse(ENOMEM, words, "no memory");
    if (r == 0)
        hold_go(names[order->verb]);
    return r;
}

/* ---- pause ---- */

struct pausing {
    uint64_t thread, for_ns, here;
    size_t found;
    char *words;
    int error;
};

static void pause_one(struct interpreter *interpreter, void *arg)
{
    struct pausing *pausing = arg;
    size_t found = 0;
    int r = step_pause(interpreter, pausing->thread, pausing->for_ns, pausing->here, &found,
                       pausing->words);
    pausing->found += found;
    pausing->error = pausing->error ? pausing->error : r;
}

static int pause_them(struct interpreter *interpreter, const struct proto_thread *order,
                      char words[PROTO_WORDS_MAX])
{
    struct pausing pausing = {order->thread, order->stop_ns, order->here, 0, words, 0};

    pause_one(interpreter, &pausing);
    interpreter_each_there(pause_one, &pausing);
    if (pausing.error == 0 && !pausing.found)
        return refuse(ESRCH, words, "the thread runs no Python");
    return pausing.error;
}

int order_run(struct interpreter *interpreter, const struct proto_thread *order,
              char words[PROTO_WORDS_MAX])
{
    const struct hold *hold = hold_own();

    switch (order->verb) {
    case THREAD_PAUSE: return pause_them(interpreter, order, words);
    case THREAD_JUMP: return hold ? jump(hold, order->line, words) : -ESRCH;
    case THREAD_STEP:
    case THREAD_NEXT:
    case THREAD_FINISH:
    case THREAD_RETURN:
    case THREAD_UNTIL:
    case THREAD_STEP_OWN: return hold ? step(interpreter, hold, order, words) : -ESRCH;
    default: return refuse(EINVAL, words, "no such order");
    }
}
