/* The module `probing` in one interpreter, with span() and event().
 *
 * The module's functions and types hold a capsule that owns a struct probing. Once the capsule is
 * freed, nothing of the module is left in that interpreter. Functions and types that the program
 * has kept outlive a detach; they do nothing until there is an agent again. */
#pragma once

#include "agent/cpython/current_task.h"

struct thread_spans;

struct probing {
    struct probing *next; /* of the process; with agent_lock */
    int64_t interpreter;  /* its id */
    PyObject *capsule;    /* borrowed */
    PyObject *module;     /* a weak reference; NULL: there has been none */
    bool installed;       /* with agent_lock */
    PyObject *finder;     /* in sys.meta_path: finder.c */
    PyObject *span_type;  /* span.c; NULL: not needed yet */
    PyObject *python;     /* a dict: python_part.c; NULL: not needed yet */
    /* span_context.c */
    struct thread_spans *threads; /* all of them */
    struct thread_spans *last;    /* that asked last */
    PyObject *variable;           /* a ContextVar: the innermost span of an asyncio task */
    Py_ssize_t modules;           /* in sys.modules, when they were looked at */
    bool switches; /* it has what switches stacks or tasks on a thread, other than asyncio */
    struct current_task tasks;
};

/* All functions are called with the GIL of their interpreter. Objects that they return are new
 * references, or NULL with an exception set, unless a comment says otherwise. */

/* The struct probing of the current interpreter, made if there is none. NULL with an exception set.
 * *capsule: a new reference, which keeps it alive. */
struct probing *probing_here(PyObject **capsule);
/* The owner of a capsule, which is the first argument of each function. */
struct probing *probing_of(PyObject *capsule);
/* The module `probing`: the same object for as long as the program refers to it. */
PyObject *probing_module(struct probing *probing);
/* Puts span(), event() and start() into a module. 0, or -1 with an exception set. */
int probing_fill(struct probing *probing, PyObject *module);
/* Has what would outlive the interpreter dropped at its end, where the program has imported the
 * module by itself in another interpreter than the main one. 0, or -1 with an exception set. */
int probing_drop_at_exit(struct probing *probing);
/* Makes `import probing` work in the current interpreter. No exception is set afterwards. */
void probing_install(void);
/* Whether `import probing` works in some interpreter. Any thread. */
bool probing_installed(void);
/* Releases our references to the module, for a detach. No exception is set afterwards. */
void probing_drop(void);
/* Whether any interpreter still holds functions or types of the module. Any thread. */
bool probing_remains(void);
