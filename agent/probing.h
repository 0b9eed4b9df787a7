/* What `import probing` gives a program in one interpreter: span() and event().
 *
 * Its functions and types hold a capsule that owns this: once it is gone, nothing of it is left in that
 * interpreter. They outlive a detach if the program has kept them, and do nothing until there is an agent again. */
#pragma once

#include "agent/python.h"

struct thread_spans;

struct probing {
    struct probing *next;         /* of the process; with agent.lock */
    int64_t interpreter;          /* its id */
    PyObject *capsule;            /* borrowed */
    PyObject *module;             /* a weak reference; NULL: there has been none */
    bool installed;               /* with agent.lock */
    PyObject *finder;             /* in sys.meta_path: finder.c */
    PyObject *span_type;          /* span.c; NULL: not needed yet */
    PyObject *decorate;           /* a function: decorate.c; NULL: not needed yet */
    /* place.c */
    struct thread_spans *threads; /* all of them */
    struct thread_spans *last;    /* that asked last */
    PyObject *variable;           /* a ContextVar: the innermost span of an asyncio task */
    Py_ssize_t modules;           /* in sys.modules, when they were looked at */
    bool switches;                /* it has what switches stacks or tasks on a thread, other than asyncio */
    PyObject *running_loop;       /* of _asyncio; NULL: it hasn't been imported */
    PyObject *current_task;       /* a function of the loop, or until 3.11 a dict by loop */
    PyObject *task_name;          /* Task.get_name */
    PyObject *task_type;
};

/* All with the GIL of the interpreter that it is about. Those that return an object return a new reference, or NULL with an
 * exception set, unless they say something else. */

/* That of the calling thread's interpreter, made if need be: NULL with an exception set. The capsule is a new
 * reference, which keeps it. */
struct probing *probing_here(PyObject **capsule);
/* Whose capsule it is: the first argument of each function. */
struct probing *probing_of(PyObject *capsule);
/* The module, the same one for as long as anybody knows it. */
PyObject *probing_module(struct probing *probing);
/* Makes one that is there the module: puts span(), event() and start() into it. 0, or -1 with an exception
 * set. */
int probing_fill(struct probing *probing, PyObject *module);
/* For a module that the program has imported by itself: in another interpreter than the main one, drops what would
 * outlive it. 0, or -1 with an exception set. */
int probing_drop_at_exit(struct probing *probing);
/* Makes `import probing` work in the calling thread's interpreter, if need be. No exception is set after
 * it. */
void probing_install(void);
/* Whether it was installed somewhere, and not dropped. Any thread. */
bool probing_installed(void);
/* Detaching: gives up what keeps it. No exception is set after it. */
void probing_drop(void);
/* Whether in any interpreter something of it is left. Any thread. */
bool probing_remains(void);
