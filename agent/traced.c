#include "agent/traced.h"

#include <dlfcn.h>
#include <errno.h>

#define WORDS_MAX 32 /* of a thread state, in which the field is looked for */

static struct {
    traced_function *function;
    PyThreadState *(*first)(PyInterpreterState *); /* PyInterpreterState_ThreadHead */
    PyThreadState *(*next)(PyThreadState *);       /* PyThreadState_Next */
    uint8_t on; /* what use_tracing is while something is traced: 1, or 255 from 3.11 on */
} api;

/* Before it come the function of profilers, and the CFrame of the innermost frame, which begins with use_tracing. */
size_t traced_word;

static traced_function **function_of(const PyThreadState *state) { return (traced_function **)state + traced_word; }

static traced_function *profiler_of(const PyThreadState *state) { return function_of(state)[-1]; }

/* Its lowest byte is all that there is of it. */
static uint8_t *use_tracing(const PyThreadState *state) { return *((uint8_t **)state + traced_word - 2); }

typedef int set_function(PyThreadState *, traced_function *, PyObject *);

/* Sets our own thread's for a moment to find where it is kept. */
static int find_word(PyThreadState *own, set_function *set, traced_function *function)
{
    traced_function **words = (traced_function **)own;

    set(own, function, NULL); /* an audit hook may refuse it */
    for (size_t i = 2; i < WORDS_MAX && !traced_word; i++)
        if (words[i] == function)
            traced_word = i;
    if (!traced_word)
        return -EOPNOTSUPP;
    api.on = *use_tracing(own);
    *function_of(own) = NULL;
    *use_tracing(own) = 0;
    set(own, function, NULL);
    bool same = *function_of(own) == function && *use_tracing(own) == api.on && (api.on == 1 || api.on == 255);
    *function_of(own) = NULL;
    *use_tracing(own) = 0;
    if (!same)
        traced_word = 0;
    return same ? 0 : -EOPNOTSUPP;
}

/* Whether the program's audit hooks have nothing against it. */
static bool is_allowed(void)
{
    int (*audit)(const char *, const char *, ...) =
        (int (*)(const char *, const char *, ...))dlsym(RTLD_DEFAULT, "PySys_Audit");
    return audit && audit("sys.settrace", NULL) == 0;
}

/* From 3.11 on a thread that is told to trace nothing, as ours is, doesn't say that it would. */
static int find_fields(set_function *set, traced_function *function)
{
    PyThreadState *own = PyThreadState_Get();

    if (python.leave_tracing)
        python.leave_tracing(own);
    int r = find_word(own, set, function);
    if (python.enter_tracing)
        python.enter_tracing(own);
    return r;
}

int traced_bind(traced_function *function)
{
    set_function *set = (set_function *)dlsym(RTLD_DEFAULT, "_PyEval_SetTrace");

    api.function = function;
    api.first = (PyThreadState * (*)(PyInterpreterState *)) dlsym(RTLD_DEFAULT, "PyInterpreterState_ThreadHead");
    api.next = (PyThreadState * (*)(PyThreadState *)) dlsym(RTLD_DEFAULT, "PyThreadState_Next");
    bool fit = python.version < 0x030c && set && api.first && api.next && is_allowed();
    int r = !fit ? -EOPNOTSUPP : traced_word ? 0 : find_fields(set, function);
    PyErr_Clear();
    return r;
}

PyThreadState *traced_first(PyInterpreterState *interpreter) { return api.first(interpreter); }
PyThreadState *traced_next(PyThreadState *state) { return api.next(state); }

bool traced_is_on(const PyThreadState *state) { return *function_of(state) == api.function; }

bool traced_is_others(const PyThreadState *state) { return *function_of(state) && !traced_is_on(state); }

void traced_on(PyThreadState *state)
{
    if (traced_is_others(state))
        return;
    *function_of(state) = api.function;
    *use_tracing(state) = api.on;
}

void traced_off(PyThreadState *state)
{
    if (!traced_is_on(state))
        return;
    *function_of(state) = NULL;
    *use_tracing(state) = profiler_of(state) ? api.on : 0;
}
