#include "agent/eval/interrupt.h"

#include "agent/base/clock.h"
#include "agent/base/lock.h"
#include "agent/base/thread.h"
#include "agent/cpython/own_code.h"
#include "agent/cpython/thread_states.h"

#define STACK (64u * 1024)
#define IMPORTS_NS 1000000u /* between two looks at a thread that imports */
#define IMPORTS_LOOKS 1000u /* before the end of an interpreter; then it is raised anyway */

static bool exists;      /* the thread is under way; with the lock */
static pthread_t thread; /* the last one; the channel's thread's business */
static bool joinable;

/* The request, if it runs in that interpreter; else NULL. It can't finish without the GIL, which
 * the caller has; where there is none, it waits for who strikes it (requests_settle()). */
static struct request *find_running(const struct interpreter *interpreter, uint64_t id)
{
    _guard_agent_;
    struct request *running = id ? requests_now_of(id) : requests_now();
    if (!running || running->state != REQUEST_RUNNING || running->op == PROTO_DETACH ||
        running->eval.interp != interpreter->id)
        return NULL;
    requests_interrupt(running);
    running->striking += python.free_threaded;
    return running;
}

/* Calls a function of evaluate/striking.py. No exception is set after it. */
static void call(const struct guest *guest, const char *name, pthread_t runner)
{
    PyObject *function = PyDict_GetItemString(guest->globals, name); /* borrowed */

    if (function)
        Py_DecRef(PyObject_CallFunction(function, "k", (unsigned long)runner));
    PyErr_Clear();
}

/* Interrupts it without a GIL. */
static void strike(const struct guest *guest, struct request *running)
{
    call(guest, "strike", running->runner);
    _guard_agent_;
    running->striking--;
    pthread_cond_broadcast(&agent_changed);
}

static bool is_of_import(PyFrameObject *frame)
{
    _cleanup_unref_ PyObject *code = (PyObject *)PyFrame_GetCode(frame);
    return own_code_is_import(code);
}

/* Whether the innermost function of Python's in a thread is one of import itself. What is raised
 * there, between taking a lock and the `try` or `with` that gives it back, leaves the lock taken:
 * _get_module_lock() takes that of all imports, of which each thread of the program has need. */
static bool imports(struct interpreter *interpreter, unsigned long ident)
{
    struct thread_seen *all;
    size_t count;
    bool found = false;

    if (thread_states_all(interpreter->state, &all, &count) < 0)
        return false;
    for (size_t i = 0; i < count; i++)
        found |= all[i].ident == ident && all[i].frame && is_of_import(all[i].frame);
    thread_states_drop(all, count);
    return found;
}

/* The lock is not held meanwhile: a thread that forks holds CPython's own lock of thread
 * states when it waits for ours. False: the request is at an import. */
static bool interrupt_running(struct interpreter *interpreter, uint64_t id, bool anyway)
{
    struct request *running = find_running(interpreter, id);

    if (!running)
        return true;
    if (python.free_threaded) {
        strike(&interpreter->guest, running);
        return true;
    }
    unsigned long ident = (unsigned long)running->runner;
    if (!anyway && imports(interpreter, ident))
        return false;
    PyThreadState_SetAsyncExc(ident, PyExc_KeyboardInterrupt);
    return true;
}

void interrupt_all(struct interpreter *interpreter)
{
    for (unsigned i = 0; !interrupt_running(interpreter, 0, i >= IMPORTS_LOOKS); i++) {
        PyThreadState *state = PyEval_SaveThread();
        nap_ns(IMPORTS_NS);
        PyEval_RestoreThread(state);
    }
}

void interrupt_clear(void) { PyThreadState_SetAsyncExc((unsigned long)pthread_self(), NULL); }

void interrupt_settle(const struct guest *guest, const struct request *request)
{
    if (!python.free_threaded) {
        interrupt_clear();
        return;
    }
    PyThreadState *state = PyEval_SaveThread();
    requests_settle(request);
    PyEval_RestoreThread(state);
    call(guest, "calm", pthread_self());
}

/* The request to interrupt, and where it runs; 0: none, the thread ends. */
static uint64_t next(struct interpreter **interpreter)
{
    const struct request *request;

    _guard_agent_;
    while ((request = requests_now_to_raise()))
        if ((*interpreter = interpreter_find(request->eval.interp)))
            return request->id;
    exists = false;
    pthread_cond_broadcast(&agent_changed);
    return 0;
}

/* Lets a request go on with what it imports, and looks at it again then. */
static void again(uint64_t id)
{
    nap_ns(IMPORTS_NS);
    _guard_agent_;
    struct request *request = requests_now_of(id);
    if (request)
        request->raised = false;
}

static void *interrupt_main(void *arg)
{
    struct interpreter *interpreter;
    uint64_t id;

    thread_name("probe-interrupt");
    while ((id = next(&interpreter))) {
        PyThreadState *state = interpreter_visit(interpreter, 0);
        if (!state)
            continue; /* its end interrupts what runs */
        bool raised = interrupt_running(interpreter, id, false);
        interpreter_visit_end(interpreter, state);
        if (!raised)
            again(id);
    }
    return NULL;
}

static void join_last(void)
{
    if (joinable)
        pthread_join(thread, NULL);
    joinable = false;
}

int interrupt_later(uint64_t id)
{
    {
        _guard_agent_;
        struct request *request = requests_now_of(id);
        if (!request)
            return 0;
        requests_interrupt(request);
        request->raised = false;
        if (exists)
            return 0;
        exists = true;
    }
    join_last();
    int r = thread_spawn(STACK, false, interrupt_main, NULL, &thread);
    if (r < 0) {
        _guard_agent_;
        exists = false;
        return r;
    }
    joinable = true;
    return 0;
}

void interrupt_join(void)
{
    {
        _guard_agent_;
        while (exists)
            pthread_cond_wait(&agent_changed, &agent_lock);
    }
    join_last();
}

void interrupt_forget(void) { exists = joinable = false; }
