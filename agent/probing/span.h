/* The object behind `with probing.span("step", loss=0.1):`, which is also a decorator.
 *
 * Its row is written when it begins, and completed when it ends: of a program that
 * hangs one sees in which span it is. An object that is entered again while it is open
 * opens others of the same name. */
#pragma once

#include "agent/probing/span_context.h"
#include "schema/rows.h"

struct span {
    PyObject_HEAD PyObject *capsule; /* keeps `probing` */
    struct probing *probing;
    PyObject *name;             /* a str, exactly */
    PyObject *attrs;            /* bytes: JSON; NULL: none */
    struct ring_text name_text; /* its UTF-8 ... */
    PyObject *text_owner;       /* ... which is a part of this */
    struct span *again;         /* opened by entering this one while it was open; owned */
    /* while it is open, and id and parent until it begins again */
    bool entered;
    bool open;      /* and recorded */
    bool lost;      /* it ended where it was not the innermost one of a context */
    unsigned forks; /* fork_count() when it began */
    pid_t tid;
    int64_t id, parent; /* RING_NULL_INTEGER: not recorded, none */
    double start;       /* [s] since 1970 */
    uint64_t start_ns;  /* CLOCK_MONOTONIC */
    struct ring_ticket ticket;
    PyObject *task; /* name of the task, bytes; NULL: none */
    /* span_context.c: in the list of a thread ... */
    struct thread_spans *thread;
    struct span *outer, *inner;
    /* ... or in a context variable */
    bool in_context;
    unsigned depth;   /* how many there are around it */
    PyObject *before; /* the variable's value; NULL: none */
};

/* span(name, /, **attrs): the capsule is its self. */
PyObject *span_function(PyObject *capsule, PyObject *const *args, Py_ssize_t count,
                        PyObject *names);

/* Checks what span() and event() have in common: name, /, **attrs. NULL with a TypeError
 * set; else the name, borrowed. */
PyObject *span_check_name(const char *function, PyObject *const *args, Py_ssize_t count);
