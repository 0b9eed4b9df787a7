#include "agent/breakpoint/capture.h"

#include "agent/base/thread.h"
#include "agent/cpython/code_flags.h"
#include "agent/cpython/codes.h"
#include "agent/cpython/exception_words.h"
#include "agent/wire/record.h"

#include <string.h>

/* ---- expressions ---- */

/* Whether what is set was raised by a handler of a signal, as far as can be told: those run in the
 * main thread only, and what they raise isn't meant for us. */
static bool is_programs(void)
{
    return thread_tid() == probe_agent_record.pid && !PyErr_ExceptionMatches(PyExc_Exception);
}

/* An expression or a repr() has failed: the first failure is what the row says. */
void capture_note_error(struct hit *hit)
{
    if (is_programs()) {
        hit->escapes = true;
        return;
    }
    if (hit->error[0])
        PyErr_Clear();
    else
        exception_words(hit->error, sizeof hit->error);
}

static PyObject *evaluate(struct hit *hit, int which, const char *text)
{
    if (!*hit->compiled && !expression_bind()) /* which looks functions up: not at each hit */
        return PyErr_NoMemory();
    return expression_value(hit->compiled, hit->breakpoint, which, text, &hit->scope);
}

bool capture_is_true(struct hit *hit)
{
    if (!hit->breakpoint->condition)
        return true;
    _cleanup_unref_ PyObject *value =
        evaluate(hit, EXPRESSION_CONDITION, hit->breakpoint->condition);
    int truth = value ? PyObject_IsTrue(value) : -1;
    if (truth < 0)
        capture_note_error(hit);
    return truth > 0;
}

/* What it shows besides variables. */
static const char *value_name(const struct hit *hit)
{
    return hit->breakpoint->kind == BREAKPOINT_RETURN  ? "return"
           : hit->breakpoint->kind == BREAKPOINT_RAISE ? "exception"
                                                       : NULL;
}

void capture_set_scope(struct hit *hit)
{
    const struct reached *reached = hit->reached;
    const struct change *change = reached->change;
    struct expression_extra *extras = hit->scope.extras;
    unsigned count = 0;

    hit->scope.frame = reached->frame;
    hit->scope.code = reached->code;
    if (reached->nextras) {
        count = reached->nextras;
        memcpy(extras, reached->extras, count * sizeof *extras);
    } else if (change) {
        extras[count++] = (struct expression_extra){"old", change->old_value};
        extras[count++] = (struct expression_extra){"new", change->new_value};
    } else if (value_name(hit)) {
        extras[count++] = (struct expression_extra){hit->breakpoint->kind == BREAKPOINT_RETURN
                                                        ? "__return__"
                                                        : "__exception__",
                                                    reached->value};
    }
    if (count < EXPRESSION_EXTRAS)
        extras[count].name = NULL;
}

/* ---- captures ---- */

static void add(struct hit *hit, const char *name, PyObject *value)
{
    if (!hit->escapes && !repr_add(&hit->captured, name, value))
        capture_note_error(hit);
}

static void capture_expressions(struct hit *hit)
{
    const char *text = hit->breakpoint->captures;

    for (uint32_t i = 0; i < hit->breakpoint->ncaptures && !hit->escapes;
         i++, text += strlen(text) + 1) {
        _cleanup_unref_ PyObject *value = evaluate(hit, (int)i, text);
        if (!value)
            capture_note_error(hit);
        add(hit, text, value);
    }
}

/* Adds the variables of a function's frame that are of one kind (co_varnames, ...) and not of
 * another, which may be NULL. */
static void capture_variables(struct hit *hit, const char *kind, const char *but)
{
    _cleanup_unref_ PyObject *names = PyObject_GetAttrString(hit->reached->code, kind);
    _cleanup_unref_ PyObject *others =
        names && but ? PyObject_GetAttrString(hit->reached->code, but) : NULL;
    Py_ssize_t count = names ? PyTuple_Size(names) : 0;

    PyErr_Clear();
    for (Py_ssize_t i = 0; i < count && !hit->escapes; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
        bool wanted = text && text[0] != '.' && !(others && PySequence_Contains(others, name) > 0);
        _cleanup_unref_ PyObject *value = wanted ? expression_variable(hit->reached->frame, name)
                                                 : NULL;
        PyErr_Clear();
        if (value)
            add(hit, text, value);
    }
}

/* Adds the variables of the frame of a module or a class. */
static void capture_dict(struct hit *hit)
{
    _cleanup_unref_ PyObject *locals =
        PyObject_GetAttrString((PyObject *)hit->reached->frame, "f_locals");
    _cleanup_unref_ PyObject *items = locals && PyDict_Check(locals) ? PyDict_Items(locals) : NULL;
    Py_ssize_t count = items ? PyList_Size(items) : 0;

    PyErr_Clear();
    for (Py_ssize_t i = 0; i < count && !hit->escapes && !hit->captured.full; i++) {
        PyObject *item = PyList_GetItem(items, i), *name = PyTuple_GetItem(item, 0);
        const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
        PyErr_Clear();
        if (text && strncmp(text, "__", 2) != 0)
            add(hit, text, PyTuple_GetItem(item, 1));
    }
}

static void capture_locals(struct hit *hit)
{
    if (!hit->reached->frame)
        return;
    if (!(codes_number(hit->reached->code, CODE_FLAGS) & CO_OPTIMIZED)) {
        capture_dict(hit);
        return;
    }
    capture_variables(hit, "co_varnames", NULL);
    capture_variables(hit, "co_cellvars", "co_varnames"); /* an argument may be both */
    capture_variables(hit, "co_freevars", NULL);
}

void capture_values(struct hit *hit)
{
    repr_begin(&hit->captured);
    if (hit->breakpoint->ncaptures) {
        capture_expressions(hit);
    } else if (hit->reached->nshown) {
        for (unsigned i = 0; i < hit->reached->nshown; i++)
            add(hit, hit->reached->extras[i].name, hit->reached->extras[i].value);
    } else {
        if (value_name(hit))
            add(hit, value_name(hit), hit->reached->value);
        capture_locals(hit);
    }
    repr_end(&hit->captured);
}
