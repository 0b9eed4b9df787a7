/* atexit and not threading._register_atexit(): both come before an interpreter refuses its threads,
 * but the latter is called when the main thread has ended while others still run the program, as
 * servers do for hours; and it would mean importing threading where the program doesn't. Only where
 * a thread has been held the latter is needed, too, which joins the threads: from then on none is
 * held, also if others go on for hours.
 *
 * The main interpreter's end is never delayed by more than EXIT_NS: a thread state of ours
 * that is left behind is harmless there, its thread is stopped at its next wish for the
 * GIL. In another interpreter it would be fatal before 3.13 (Py_EndInterpreter: "not the
 * last thread"): there it waits. */
#include "agent/interpreter/joining.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "agent/base/life.h"
#include "agent/base/lock.h"
#include "agent/interpreter/interpreter.h"
#include "agent/interpreter/own_threads.h"
#include "agent/interpreter/part.h"

#include <errno.h>

#define EXIT_NS 100000000ull

/* Nobody goes in any more. Whether it is the main interpreter. */
static bool close_gate(struct interpreter *interpreter)
{
    _guard_agent_;
    bool is_main = interpreter_is_main(interpreter);
    interpreter->closed = true;
    agent_life.ending = agent_life.ending || is_main;
    pthread_cond_broadcast(&agent_changed);
    return is_main;
}

static void wait_empty(const struct interpreter *interpreter, bool for_ever)
{
    struct timespec until = timespec_of(monotonic_ns() + EXIT_NS);

    _guard_agent_;
    while (interpreter->inside)
        if (for_ever)
            pthread_cond_wait(&agent_changed, &agent_lock);
        else if (pthread_cond_clockwait(&agent_changed, &agent_lock, CLOCK_MONOTONIC, &until))
            break;
}

PyObject *joining_at_exit(PyObject *capsule, PyObject *unused)
{
    struct interpreter *interpreter = guest_owner(capsule);

    if (!interpreter)
        return NULL;
    bool is_main = close_gate(interpreter);
    parts_let_go(interpreter);
    if (!own_thread_self()) { /* else the code that it runs ends the interpreter */
        parts_interrupt(interpreter);
        PyThreadState *state = PyEval_SaveThread();
        wait_empty(interpreter, !is_main);
        PyEval_RestoreThread(state);
    }
    if (!is_main) {
        parts_end(interpreter);
        parts_uninstall();
    }
    Py_IncRef(Py_None);
    return Py_None;
}

/* ---- threading ---- */

static PyObject *joining_hook(PyObject *capsule, PyObject *unused)
{
    struct interpreter *interpreter = guest_owner(capsule);

    if (!interpreter)
        return NULL;
    {
        _guard_agent_;
        interpreter->exiting = true;
    }
    parts_let_go(interpreter);
    Py_IncRef(Py_None);
    return Py_None;
}

static PyMethodDef joining_def = {"probefs_agent_joining", joining_hook, METH_NOARGS, NULL};

/* What threading calls before it joins threads, the last one first; new. NULL: it isn't imported,
 * or has no such list. Its own threading._register_atexit() only adds to it. */
static PyObject *find_list(void)
{
    PyObject *modules = PyImport_GetModuleDict(); /* borrowed, as what follows */
    PyObject *threading = modules ? PyDict_GetItemString(modules, "threading") : NULL;
    _cleanup_unref_ PyObject *list =
        threading ? PyObject_GetAttrString(threading, "_threading_atexits") : NULL;

    PyErr_Clear();
    return list && PyList_CheckExact(list) ? steal_pointer(list) : NULL;
}

static void take_out(PyObject *list, const PyObject *hook)
{
    for (Py_ssize_t i = PyList_Size(list); i-- > 0;)
        if (PyList_GetItem(list, i) == hook)
            PySequence_DelItem(list, i);
    PyErr_Clear();
}

void joining_watch(struct interpreter *interpreter)
{
    struct guest *guest = &interpreter->guest;
    _cleanup_unref_ PyObject *list = guest->capsule ? find_list() : NULL;

    if (!list)
        return;
    if (!guest->joining)
        guest->joining = guest_function(guest, &joining_def);
    Py_ssize_t size = PyList_Size(list);
    if (guest->joining && (!size || PyList_GetItem(list, size - 1) != guest->joining)) {
        take_out(list, guest->joining);
        PyList_Append(list, guest->joining);
    }
    PyErr_Clear();
}

void joining_unwatch(struct guest *guest)
{
    _cleanup_unref_ PyObject *list = guest->joining ? find_list() : NULL;

    if (list)
        take_out(list, guest->joining);
    python_clear(&guest->joining);
}
