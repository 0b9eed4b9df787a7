#include "agent/cpython/trace_fields.h"

#include "agent/cpython/look_up.h"

#include <errno.h>

#define WORDS_MAX 32 /* of a thread state, in which the field is looked for */

struct trace_fields trace_fields;

static trace_fields_called *profiler_of(const PyThreadState *state)
{
    return trace_fields_function(state)[-1];
}

typedef int set_function(PyThreadState *, trace_fields_called *, PyObject *);

/* Sets our own thread's for a moment to find where it is kept. */
static int find_word(PyThreadState *own, set_function *set, trace_fields_called *function)
{
    trace_fields_called **words = (trace_fields_called **)own;

    set(own, function, NULL); /* an audit hook may refuse it */
    for (size_t i = 2; i < WORDS_MAX && !trace_fields.word; i++)
        if (words[i] == function)
            trace_fields.word = i;
    if (!trace_fields.word)
        return -EOPNOTSUPP;
    trace_fields.on = *trace_fields_use(own);
    *trace_fields_function(own) = NULL;
    *trace_fields_use(own) = 0;
    set(own, function, NULL);
    bool same = *trace_fields_function(own) == function &&
                *trace_fields_use(own) == trace_fields.on &&
                (trace_fields.on == 1 || trace_fields.on == 255);
    *trace_fields_function(own) = NULL;
    *trace_fields_use(own) = 0;
    if (!same)
        trace_fields.word = 0;
    return same ? 0 : -EOPNOTSUPP;
}

/* Whether the program's audit hooks have nothing against it. */
static bool is_allowed(void)
{
    int (*audit)(const char *, const char *, ...) =
        (int (*)(const char *, const char *, ...))looked_up.PySys_Audit;
    return audit && audit("sys.settrace", NULL) == 0;
}

/* From 3.11 on a thread that is told to trace nothing, as ours is, doesn't say that it would. */
static int find_fields(set_function *set, trace_fields_called *function)
{
    PyThreadState *own = PyThreadState_Get();

    if (python.leave_tracing)
        python.leave_tracing(own);
    int r = find_word(own, set, function);
    if (python.enter_tracing)
        python.enter_tracing(own);
    return r;
}

int trace_fields_bind(trace_fields_called *function, bool own)
{
    set_function *set = (set_function *)looked_up._PyEval_SetTrace;

    trace_fields.ours = function;
    bool fit = python.version < 0x030c && set && (own || trace_fields.word) && is_allowed();
    int r = !fit ? -EOPNOTSUPP : trace_fields.word ? 0 : find_fields(set, function);
    PyErr_Clear();
    return r;
}

void trace_fields_on(PyThreadState *state)
{
    if (trace_fields_is_others(state))
        return;
    *trace_fields_function(state) = trace_fields.ours;
    *trace_fields_use(state) = trace_fields.on;
}

void trace_fields_rest(PyThreadState *state, bool raises)
{
    if (trace_fields_is_others(state))
        return;
    *trace_fields_function(state) = raises ? trace_fields.ours : NULL;
    *trace_fields_use(state) = profiler_of(state) ? trace_fields.on : 0;
}
