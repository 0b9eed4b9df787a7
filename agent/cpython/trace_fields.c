#include "agent/cpython/trace_fields.h"

#include <dlfcn.h>
#include <errno.h>

#define WORDS_MAX 32 /* of a thread state, in which the field is looked for */

struct traced traced;

static traced_function *profiler_of(const PyThreadState *state)
{
    return traced_function_of(state)[-1];
}

typedef int set_function(PyThreadState *, traced_function *, PyObject *);

/* Sets our own thread's for a moment to find where it is kept. */
static int find_word(PyThreadState *own, set_function *set, traced_function *function)
{
    traced_function **words = (traced_function **)own;

    set(own, function, NULL); /* an audit hook may refuse it */
    for (size_t i = 2; i < WORDS_MAX && !traced.word; i++)
        if (words[i] == function)
            traced.word = i;
    if (!traced.word)
        return -EOPNOTSUPP;
    traced.on = *traced_use(own);
    *traced_function_of(own) = NULL;
    *traced_use(own) = 0;
    set(own, function, NULL);
    bool same = *traced_function_of(own) == function && *traced_use(own) == traced.on &&
                (traced.on == 1 || traced.on == 255);
    *traced_function_of(own) = NULL;
    *traced_use(own) = 0;
    if (!same)
        traced.word = 0;
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

    traced.ours = function;
    bool fit = python.version < 0x030c && set && is_allowed();
    int r = !fit ? -EOPNOTSUPP : traced.word ? 0 : find_fields(set, function);
    PyErr_Clear();
    return r;
}

void traced_on(PyThreadState *state)
{
    if (traced_is_others(state))
        return;
    *traced_function_of(state) = traced.ours;
    *traced_use(state) = traced.on;
}

void traced_rest(PyThreadState *state, bool raises)
{
    if (traced_is_others(state))
        return;
    *traced_function_of(state) = raises ? traced.ours : NULL;
    *traced_use(state) = profiler_of(state) ? traced.on : 0;
}
