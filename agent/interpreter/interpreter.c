#include "agent/interpreter/interpreter.h"

#include "agent/base/cleanup.h"
#include "agent/base/lock.h"
#include "agent/cpython/gil.h"
#include "agent/cpython/thread_states.h"
#include "agent/interpreter/own_threads.h"
#include "agent/interpreter/part.h"

#include <errno.h>

struct interpreter interpreters[INTERPRETERS_MAX] = {[0].used = true};
static struct interpreter *const main_interpreter = &interpreters[0];

struct interpreter *interpreter_find(int64_t id)
{
    for (size_t i = 0; i < INTERPRETERS_MAX; i++)
        if (interpreters[i].used && interpreters[i].id == id)
            return &interpreters[i];
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
    pthread_cond_broadcast(&agent_changed);
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

static PyThreadState *new_state_without_gil(PyInterpreterState *state)
{
    _guard_mutex_(&fork_lock);
    return new_state(state);
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
        own_thread_self()->state = new_state_without_gil(main_interpreter->state);
        r = own_thread_self()->state ? 0 : -ENOMEM;
    }
    if (r < 0)
        go_out(main_interpreter);
    return r;
}

struct interpreter *interpreter_begin_main(void)
{
    if (check_initialized() < 0 || PyInterpreterState_Get() != python.interpreter_main())
        return NULL;
    main_interpreter->state = python.interpreter_main();
    int r = guest_make(&main_interpreter->guest, main_interpreter);
    PyErr_Clear();
    return r < 0 ? NULL : main_interpreter;
}

/* A free or outlived entry becomes that of an interpreter. */
static struct interpreter *add_interpreter(int64_t id, PyInterpreterState *state)
{
    _guard_agent_;
    struct interpreter *interpreter = interpreter_find(id);
    for (size_t i = 1; i < INTERPRETERS_MAX && !interpreter; i++) {
        struct interpreter *free_one = &interpreters[i];
        if (!free_one->used || (free_one->closed && !free_one->inside)) {
            *free_one = (struct interpreter){
                .used = true, .id = id, .state = state, .guest.capsules = free_one->guest.capsules};
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
    int r = own_thread_self()->state ? 0 : settle();
    if (r < 0)
        return r;
    gil_take(own_thread_self()->state, hint);
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
    PyThreadState_Swap(own_thread_self()->state);
    PyThreadState_Delete(thread);
    go_out(interpreter);
}

void interpreter_leave(struct interpreter *interpreter)
{
    if (interpreter != main_interpreter)
        cross_back(interpreter);
    PyEval_SaveThread();
}

void interpreter_unsettle(void)
{
    clear_state(own_thread_self()->state);
    own_thread_self()->state = NULL;
    python.state_delete_current();
    go_out(main_interpreter);
}

void interpreter_leave_main(void)
{
    if (!own_thread_self()->state)
        return;
    gil_take(own_thread_self()->state, 0);
    interpreter_unsettle();
}

bool interpreter_nothing_remains(void)
{
    if (parts_remain())
        return false;
    for (size_t i = 0; i < INTERPRETERS_MAX; i++)
        if (guest_remains(&interpreters[i].guest))
            return false;
    return true;
}

bool interpreter_each_other(void (*visit)(struct interpreter *, void *arg), void *arg)
{
    bool all = true;

    for (size_t i = 1; i < INTERPRETERS_MAX; i++) {
        struct interpreter *other = &interpreters[i];
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

/* Whether it has come as far as to have the module of its program: before, importing
 * anything there would be early. */
static bool is_ready(void)
{
    PyObject *modules = PyImport_GetModuleDict(); /* borrowed */
    bool ready = modules && PyDict_GetItemString(modules, "__main__");

    PyErr_Clear();
    return ready;
}

/* The ids of all but the main one, whether there was room for all. One with a GIL
 * of its own may end meanwhile. */
static bool collect_others(int64_t ids[INTERPRETERS_MAX], size_t *count)
{
    bool all = true;

    *count = 0;
    if (thread_states_lock() < 0)
        return false;
    for (PyInterpreterState *state = python.interpreter_head(); state && all;
         state = python.interpreter_next(state))
        if (state != main_interpreter->state) {
            all = *count < INTERPRETERS_MAX;
            if (all)
                ids[(*count)++] = PyInterpreterState_GetID(state);
        }
    thread_states_unlock();
    return all;
}

bool interpreter_is_alone(void)
{
    if (thread_states_lock() < 0)
        return false;
    bool alone = !python.interpreter_next(python.interpreter_head());
    thread_states_unlock();
    return alone;
}

bool interpreter_each_there(void (*visit)(struct interpreter *, void *arg), void *arg)
{
    int64_t ids[INTERPRETERS_MAX];
    size_t count;

    bool all = collect_others(ids, &count);
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

void interpreter_forget(void)
{
    for (size_t i = 0; i < INTERPRETERS_MAX; i++)
        interpreters[i].inside = 0;
}
