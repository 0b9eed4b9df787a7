/* What is ours inside an interpreter: the little Python that we bring along (evaluate/),
 * executed in namespaces of its own that no sys.modules knows, and the function that is called when
 * the interpreter ends.
 *
 * Each function object of ours holds a capsule: once its destructor has run, nothing in that
 * interpreter refers to this library any more. */
#pragma once

#include "agent/cpython/python.h"

struct interpreter;

struct guest {
    PyObject *globals; /* of evaluate/; NULL: not there */
    PyObject *threads; /* of evaluate/threads.py */
    PyObject *hook;    /* registered with atexit */
    PyObject *joining; /* and with threading; NULL: not (joining.c) */
    PyObject *probe;   /* evaluate/evaluate.py's _probe */
    PyObject *capsule;
    pid_t pid;         /* in which it was made: after fork the main thread may be another one */
    unsigned capsules; /* that live: of an earlier one, too; atomic */
};

/* All with the GIL of its interpreter. */

/* Makes it, unless it is there. 0, or -EIO with a Python exception set. */
int guest_make(struct guest *guest, struct interpreter *interpreter);
/* Adds evaluate/watching.py to the globals, unless it is there: few programs are ever watched. The
 * guest is made. 0, or -EIO with a Python exception set. */
int guest_watching(struct guest *guest);
/* The same with evaluate/tree.py. */
int guest_tree(struct guest *guest);
/* Only what a program may want of its own accord, `import probing`, unless it is there.
 * No exception is set after it. */
void guest_begin(struct guest *guest, struct interpreter *interpreter);
/* Gives everything up. No exception is set after it. */
void guest_drop(struct guest *guest);
/* A new function object of ours, which finds its interpreter with guest_owner(). The guest is made.
 * NULL: with a Python exception set. */
PyObject *guest_function(const struct guest *guest, PyMethodDef *definition);
/* A new module `_probe` for Python that the agent brings along: these functions of ours, behind the
 * last of which is one without a name, and frames_are_safe() as evaluate/ has it. The guest is
 * made. NULL: with a Python exception set. */
PyObject *guest_module(const struct guest *guest, PyMethodDef *definitions);
/* A new function object of ours that keeps something: its first argument is (capsule, more). */
PyObject *guest_function_with(const struct guest *guest, PyMethodDef *definition, PyObject *more);
/* The interpreter whose capsule it is: the first argument of each function of ours. */
struct interpreter *guest_owner(PyObject *capsule);
/* Whether something may still refer to the library. */
static inline bool guest_remains(const struct guest *guest)
{
    return guest->capsules || guest->globals;
}
