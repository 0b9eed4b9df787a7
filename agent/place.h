/* Where code is that begins a span: its thread, its asyncio task, and the span around it.
 *
 * Spans nest by thread, in a list that costs next to nothing. Under a running asyncio loop many tasks take turns
 * on a thread: there the innermost span is in a context variable, so that a task begins in the span that it was
 * created in; also where trio or greenlets (gevent) have been imported, whose tasks have contexts, too. Where one knows
 * of no span, the other is asked: the first tasks of a loop are in the span that surrounds asyncio.run(), and what a worker thread is given together with a context is in the span of that.
 *
 * Spans may end in any order, in another thread or context, or never. */
#pragma once

#include "agent/probing.h"

struct span;

/* The spans of a thread; place.c. */
struct thread_spans {
    struct probing *probing;
    PyObject *capsule;           /* keeps it */
    struct thread_spans *next, **link;
    PyThreadState *state;
    PyObject *dict;              /* of the thread state, which owns this; borrowed */
    struct span *innermost;      /* not owned: a span that is dropped takes itself out */
    unsigned forks;              /* fork_count when tid was asked for */
    pid_t tid;
};

struct place {
    struct thread_spans *thread;
    bool by_context;             /* rather than by thread */
    PyObject *task;              /* the name of the task, bytes, owned; NULL: none */
    int64_t span;                /* id of the innermost one, RING_NULL_INTEGER: none */
};

/* All with the GIL. No exception is set after them, unless they say so. */

/* The calling code's. false: there is no memory. */
bool place_find(struct probing *probing, struct place *out);
void place_end(struct place *place);
/* Makes a span the innermost one there. */
void place_enter(const struct place *place, struct span *span);
/* A span has ended. */
void place_leave(struct span *span);
/* A span is no more. Whatever exception is set stays. */
void place_dropped(struct span *span);
/* Whether a span is the innermost one for the calling code. */
bool place_is_innermost(struct span *span);
/* Gives up all that the interpreter's threads have of it. */
void place_forget_all(struct probing *probing);

#define _cleanup_place_ _cleanup_(place_end)
