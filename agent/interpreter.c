#include "agent/agent.h"
#include "agent/crash.h"
#include "agent/breakpoints.h"
#include "agent/gil.h"
#include "agent/hit.h"
#include "agent/probing.h"
#include "agent/recorder.h"
#include "agent/rings.h"
#include "agent/step.h"
#include "agent/thread.h"
#include "agent/watch.h"
#include "agent/trace.h"
#include "fs/cleanup.h"

#include <errno.h>

static struct interpreter *const main_interpreter = &agent.interpreters[0];

struct interpreter *interpreter_find(int64_t id)
{
    for (size_t i = 0; i < INTERPRETERS_MAX; i++)
        if (agent.interpreters[i].used && agent.interpreters[i].id == id)
            return &agent.interpreters[i];
    return NULL;
}

static int go_in(struct interpreter *interpreter)
{
    _guard_agent_;
    if (interpreter->closed)
        return -ESHUTDOWN;
    interpreter->inside++;
    return 0;
}

static void go_out(struct interpreter *interpreter)
{
    _guard_agent_;
    interpreter->inside--;
    pthread_cond_broadcast(&agent.changed);
}

static PyThreadState *new_state(PyInterpreterState *state)
{
    PyThreadState *thread = PyThreadState_New(state);
    if (thread && python.enter_tracing)
        python.enter_tracing(thread);
    return thread;
}

/* With its GIL. */
static void clear_state(PyThreadState *thread)
{
    if (python.leave_tracing)
        python.leave_tracing(thread);
    PyThreadState_Clear(thread);
}

/* Whether Python can be entered. The main interpreter's gate is passed. */
static int check_initialized(void)
{
    int r = python.version ? 0 : python_bind();
    if (r < 0)
        return r;
    if (python.finalizing())
        return -ESHUTDOWN;
    return Py_IsInitialized() ? 0 : -EBUSY;
}

/* Python's thread gets its thread state for good. */
static int settle(void)
{
    int r = go_in(main_interpreter);
    if (r < 0)
        return r;
    r = check_initialized();
    if (!r) {
        main_interpreter->state = python.interpreter_main();
        python_thread_self()->state = new_state(main_interpreter->state);
        r = python_thread_self()->state ? 0 : -ENOMEM;
    }
    if (r < 0)
        go_out(main_interpreter);
    return r;
}

/* A free or outlived entry becomes that of an interpreter. */
static struct interpreter *add_interpreter(int64_t id, PyInterpreterState *state)
{
    _guard_agent_;
    struct interpreter *interpreter = interpreter_find(id);
    for (size_t i = 1; i < INTERPRETERS_MAX && !interpreter; i++) {
        struct interpreter *free_one = &agent.interpreters[i];
        if (!free_one->used || (free_one->closed && !free_one->inside)) {
            *free_one = (struct interpreter){.used = true, .id = id, .state = state,
                                             .guest.capsules = free_one->guest.capsules};
            interpreter = free_one;
        }
    }
    return interpreter;
}

/* From the main interpreter, with its GIL, into another one. Where both share a GIL it can't end
 * meanwhile. */
static int cross(int64_t id, struct interpreter **out)
{
    PyInterpreterState *state = python.interpreter_find ? python.interpreter_find(id) : NULL;
    if (!state) {
        PyErr_Clear();
        return -ENOENT;
    }
    struct interpreter *interpreter = add_interpreter(id, state);
    if (!interpreter)
        return -ENOMEM;
    int r = go_in(interpreter);
    if (r < 0)
        return r;
    PyThreadState *thread = new_state(state);
    if (!thread) {
        go_out(interpreter);
        return -ENOMEM;
    }
    PyThreadState_Swap(thread);
    *out = interpreter;
    return 0;
}

int interpreter_enter(int64_t id, uint64_t hint, struct interpreter **out)
{
    int r = python_thread_self()->state ? 0 : settle();
    if (r < 0)
        return r;
    gil_take(python_thread_self()->state, hint);
    if (id == 0) {
        *out = main_interpreter;
        return 0;
    }
    r = cross(id, out);
    if (r < 0)
        PyEval_SaveThread();
    return r;
}

/* Back to the main interpreter. */
static void cross_back(struct interpreter *interpreter)
{
    PyThreadState *thread = PyThreadState_Get();
    clear_state(thread);
    PyThreadState_Swap(python_thread_self()->state);
    PyThreadState_Delete(thread);
    go_out(interpreter);
}

void interpreter_leave(struct interpreter *interpreter)
{
    if (interpreter != main_interpreter)
        cross_back(interpreter);
    PyEval_SaveThread();
}

static void unsettle(void)
{
    clear_state(python_thread_self()->state);
    python_thread_self()->state = NULL;
    python.state_delete_current();
    go_out(main_interpreter);
}

void interpreter_leave_main(void)
{
    if (!python_thread_self()->state)
        return;
    gil_take(python_thread_self()->state, 0);
    unsettle();
}

bool interpreter_nothing_remains(void)
{
    if (probing_remains() || trace_remains() || crash_remains())
        return false;
    for (size_t i = 0; i < INTERPRETERS_MAX; i++)
        if (guest_remains(&agent.interpreters[i].guest))
            return false;
    return true;
}

bool interpreter_each_other(void (*visit)(struct interpreter *, void *arg), void *arg)
{
    bool all = true;

    for (size_t i = 1; i < INTERPRETERS_MAX; i++) {
        struct interpreter *other = &agent.interpreters[i];
        struct interpreter *entered;
        if (!other->used || other->closed)
            continue;
        if (cross(other->id, &entered) < 0) {
            all = false;
            continue;
        }
        visit(other, arg);
        cross_back(other);
    }
    return all;
}

/* Whether it has come as far as to have the module of its program: before, importing anything there would be early. */
static bool is_ready(void)
{
    PyObject *modules = PyImport_GetModuleDict(); /* borrowed */
    bool ready = modules && PyDict_GetItemString(modules, "__main__");

    PyErr_Clear();
    return ready;
}

bool interpreter_each_there(void (*visit)(struct interpreter *, void *arg), void *arg)
{
    int64_t ids[INTERPRETERS_MAX];
    size_t count = 0;
    bool all = true;

    for (PyInterpreterState *state = python.interpreter_head(); state; state = python.interpreter_next(state))
        if (state != main_interpreter->state) {
            all = count < INTERPRETERS_MAX;
            if (all)
                ids[count++] = PyInterpreterState_GetID(state);
        }
    for (size_t i = 0; i < count; i++) {
        struct interpreter *entered;
        if (cross(ids[i], &entered) < 0) {
            all = false;
            continue;
        }
        if (is_ready())
            guest_begin(&entered->guest, entered); /* so that its end is heard of */
        if (entered->guest.capsule)
            visit(entered, arg);
        all = all && entered->guest.capsule;
        cross_back(entered);
    }
    return all;
}

static void disarm(struct interpreter *interpreter, void *unused)
{
    watch_leave(interpreter);
    breakpoints_leave(interpreter);
}

static void give_up(struct interpreter *interpreter, void *unused)
{
    step_leave(interpreter);
    hit_leave(interpreter);
    recorder_leave(interpreter);
    crash_leave(interpreter);
    guest_drop(&interpreter->guest);
}

struct gave_up interpreter_give_up_all(void)
{
    struct gave_up gave_up;

    rings_stop();
    breakpoints_end();
    interpreter_each_other(disarm, NULL);
    disarm(main_interpreter, NULL);
    PyEval_SaveThread();
    bool left = hit_wait();
    gil_take(python_thread_self()->state, 0);
    gave_up.nobody_inside = interpreter_each_other(give_up, NULL) && left;
    give_up(main_interpreter, NULL);
    trace_wait();
    unsettle();
    gave_up.everything = interpreter_nothing_remains() && left;
    return gave_up;
}

PyThreadState *interpreter_visit(struct interpreter *interpreter, uint64_t hint)
{
    if (go_in(interpreter) < 0)
        return NULL;
    PyThreadState *thread = new_state(interpreter->state);
    if (!thread) {
        go_out(interpreter);
        return NULL;
    }
    gil_take(thread, hint);
    return thread;
}

void interpreter_visit_end(struct interpreter *interpreter, PyThreadState *state)
{
    clear_state(state);
    python.state_delete_current();
    go_out(interpreter);
}
