/* Conditions and captures: Python expressions that are evaluated where a breakpoint is hit.
 *
 * An expression is compiled into a function, once for each code object in which it is evaluated.
 * The parameters of the function are the variables of that code which the expression names: a hit
 * reads them from the frame and calls the function, and needs no dict. */
#pragma once

#include "agent/breakpoint/breakpoint.h"
#include "agent/cpython/python.h"

struct expressions; /* the compiled expressions of one interpreter */

/* A name that expressions may use besides the frame's variables: old and new at a watchpoint,
 * __return__ at a return, __exception__ at a raise, name, stage and others at what isn't finite. */
struct expression_extra {
    const char *name;
    PyObject *value; /* borrowed; NULL: it has none */
};
#define EXPRESSION_EXTRAS 7

/* Where an expression is evaluated. */
struct expression_scope {
    PyFrameObject *frame; /* borrowed; NULL: there is none, and names are those of __main__ */
    PyObject *code;       /* of it */
    struct expression_extra extras[EXPRESSION_EXTRAS]; /* up to one without name */
};

/* `which` of expression_value() for the condition of a breakpoint. */
#define EXPRESSION_CONDITION (-1)

/* Looks up what is called of CPython here. False: this CPython lacks it. */
bool expression_bind(void);
/* Whether a text can be compiled as an expression. False: an exception is set, mostly SyntaxError.
 */
bool expression_check(const char *text);
/* Evaluates the condition or a capture of a breakpoint. which: EXPRESSION_CONDITION, or the number
 * of the capture, from 0 on. Runs code of the program and may give up the GIL. Returns a new
 * reference, or NULL with an exception set. */
PyObject *expression_value(struct expressions **all, const struct breakpoint *breakpoint, int which,
                           const char *text, const struct expression_scope *scope);
/* The value of a variable of a frame; new. NULL, without an exception: the variable is unbound. */
PyObject *expression_variable(PyFrameObject *frame, PyObject *name);
/* Forgets what was compiled for breakpoints that are removed. */
void expressions_forget(struct expressions **all);
void expressions_free(struct expressions **all);
