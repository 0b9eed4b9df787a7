/* Conditions and captures: Python expressions that are evaluated where a breakpoint is.
 *
 * Each is compiled into a function once for the code that it is evaluated in: its parameters are those variables of that code
 * which it names, so that a hit takes them out of the frame and calls it, and makes no dict. */
#pragma once

#include "agent/breakpoint.h"
#include "agent/python.h"

struct expressions; /* of an interpreter: what it has compiled */

/* A name that is not the frame's: of a watchpoint old and new, of a return __return__, of an exception __exception__. */
struct expression_extra {
    const char *name;
    PyObject *value;         /* borrowed; NULL: it has none */
};
#define EXPRESSION_EXTRAS 2

/* Where it is evaluated. */
struct expression_scope {
    PyFrameObject *frame;    /* borrowed; NULL: there is none, and names are those of __main__ */
    PyObject *code;          /* of it */
    struct expression_extra extras[EXPRESSION_EXTRAS]; /* name NULL: not there */
};

/* Which of a breakpoint's. */
#define EXPRESSION_CONDITION (-1)

/* Finds the functions of CPython that this needs. */
bool expression_bind(void);
/* Whether an expression is one. False: an exception is set, mostly SyntaxError. */
bool expression_check(const char *text);
/* Evaluates one of a breakpoint: its condition, or a capture, from 0 on. Runs code of the program, and may give the GIL up.
 * New; NULL with an exception set. */
PyObject *expression_value(struct expressions **all, const struct breakpoint *breakpoint, int which, const char *text,
                           const struct expression_scope *scope);
/* The value of a variable of a frame; new. NULL, without an exception: it has none. */
PyObject *expression_variable(PyFrameObject *frame, PyObject *name);
/* Forgets what was compiled for breakpoints that are removed. */
void expressions_forget(struct expressions **all);
void expressions_free(struct expressions **all);
