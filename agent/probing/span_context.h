/* Where a span begins: its thread, its asyncio task, and the span around it.
 *
 * Spans nest by thread, in a list that costs next to nothing. Under a running asyncio loop many
 * tasks take turns on a thread: there the innermost span is in a context variable, so that a task
 * begins in the span that it was created in; also where trio or greenlets (gevent) have been
 * imported, whose tasks have contexts, too. If the list of the thread is empty, the context
 * variable is read, and the other way around: the first tasks of a loop are in the span around
 * asyncio.run(), and a function that a worker thread runs in a copied context is in the span of
 * that context.
 *
 * Spans may end in any order, in another thread or context, or never. */
#pragma once

#include "agent/probing/probing.h"

struct span;

/* The spans of a thread; span_context.c. */
struct thread_spans {
    struct probing *probing;
    PyObject *capsule; /* keeps it */
    struct thread_spans *next, **link;
    PyThreadState *state;
    PyObject *dict;         /* of the thread state, which owns this; borrowed */
    struct span *innermost; /* not owned: a span that is dropped takes itself out */
    unsigned forks;         /* fork_count when tid was asked for */
    pid_t tid;
};

struct span_context {
    struct thread_spans *thread;
    bool by_context; /* rather than by thread */
    PyObject *task;  /* the name of the task, bytes, owned; NULL: none */
    int64_t span;    /* id of the innermost one, RING_NULL_INTEGER: none */
};

/* All functions need the GIL. No exception is set afterwards. */

/* Finds where the calling code is. False: there is no memory. */
bool span_context_find(struct probing *probing, struct span_context *out);
void span_context_end(struct span_context *place);
/* Makes a span the innermost one at a place. */
void span_context_enter(const struct span_context *place, struct span *span);
/* Takes out a span that has ended. */
void span_context_leave(struct span *span);
/* Takes out a span whose object is freed. An exception that is set stays set. */
void span_context_dropped(struct span *span);
/* Whether a span is the innermost one for the calling code. */
bool span_context_is_innermost(struct span *span);
/* Frees the lists of all threads of an interpreter. */
void span_context_forget_all(struct probing *probing);

#define _cleanup_span_context_ _cleanup_(span_context_end)
