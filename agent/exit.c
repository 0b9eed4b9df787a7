/* atexit and not threading._register_atexit(): both come before an interpreter refuses its threads,
 * but the latter is called when the main thread has ended while others still run the program, as
 * servers do for hours; and it would mean importing threading where the program doesn't.
 *
 * The main interpreter's end is never delayed by more than EXIT_NS: a thread state of ours that is left
 * behind is harmless there, its thread is stopped at its next wish for the GIL. In another interpreter
 * it would be fatal before 3.13 (Py_EndInterpreter: "not the last thread"): there it waits. */
#include "agent/exit.h"

#include "agent/agent.h"
#include "agent/interrupt.h"
#include "agent/probing.h"
#include "agent/recorder.h"
#include "fs/cleanup.h"

#include <errno.h>
#include <time.h>

#define EXIT_NS 100000000ull

/* Nobody goes in any more. Whether it is the main interpreter. */
static bool close_gate(struct interpreter *interpreter)
{
    _guard_agent_;
    bool is_main = interpreter == &agent.interpreters[0];
    interpreter->closed = true;
    agent.ending = agent.ending || is_main;
    pthread_cond_broadcast(&agent.changed);
    return is_main;
}

static void wait_empty(const struct interpreter *interpreter, bool for_ever)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += EXIT_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    _guard_agent_;
    while (interpreter->inside)
        if (for_ever)
            pthread_cond_wait(&agent.changed, &agent.lock);
        else if (pthread_cond_clockwait(&agent.changed, &agent.lock, CLOCK_MONOTONIC, &until))
            break;
}

PyObject *exit_hook(PyObject *capsule, PyObject *unused)
{
    struct interpreter *interpreter = guest_owner(capsule);

    if (!interpreter)
        return NULL;
    bool is_main = close_gate(interpreter);
    if (!interrupt_own_thread()) { /* else the code that it runs ends the interpreter */
        interrupt_running(interpreter, 0);
        PyThreadState *state = PyEval_SaveThread();
        wait_empty(interpreter, !is_main);
        PyEval_RestoreThread(state);
    }
    if (!is_main) {
        recorder_leave(interpreter);
        probing_drop();
    }
    Py_IncRef(Py_None);
    return Py_None;
}
