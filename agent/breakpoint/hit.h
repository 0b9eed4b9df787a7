/* What happens where a breakpoint is reached: its condition, its captures, a row of `hits`, and,
 * for `stop`, that the thread is held.
 *
 * Code of the program runs meanwhile (expressions, repr()), and the GIL is given up:
 * whoever calls holds what it goes on with. Nothing that fails here gets into the program:
 * it becomes the row's error. */
#pragma once

#include "agent/breakpoint/breakpoint.h"
#include "agent/cpython/python.h"
#include "agent/monitor/hear.h"

#define HIT_LEAVE_NS 2000000000ull
#define HIT_ROWS 1000 /* of one breakpoint in a second; further hits are counted only */

struct interpreter;

/* The value of a watchpoint before and after. */
struct change {
    PyObject *old_value, *new_value; /* borrowed; NULL: unbound, or not known */
    bool unknown;                    /* new_value isn't known, but that it is another one */
    /* behind the instruction that wrote; RING_NULL_INTEGER: not seen by hardware */
    uint64_t address;
    /* where it was written, if that is not where `frame` is now; file NULL: it is */
    const char *func, *file;
    /* what is known of a writer that isn't proven, as in hits.sql: then func, file and line are of
     * no use; NULL: it is proven */
    const char *unproven;
    int64_t line;      /* RING_NULL_INTEGER: not known */
    const char *stack; /* as in hits.sql; NULL: that of `frame` */
    int32_t tid;       /* who wrote; 0: this thread */
    double ts;         /* when; 0: now */
    /* who is to be held, where that is another thread: at the next line that it runs
     * (step_stop_soon()); NULL: it is this one, or has ended */
    PyThreadState *writer;
};

struct expression_extra;

struct reached {
    PyFrameObject *frame;        /* borrowed: of this thread; NULL: none, only with change */
    PyObject *code;              /* borrowed: of it */
    int line;                    /* 0: none */
    PyObject *value;             /* borrowed: what is returned, or the exception; NULL */
    const struct change *change; /* of a watchpoint, else NULL */
    enum stop_why why;           /* STOP_BREAKPOINT, STOP_RETURN, STOP_WATCH */
    enum hear_event event;       /* in which it got there; HEAR_EVENTS: in none of these, it is in
                                    a call; with frame only */
    PyFrameObject *held;         /* borrowed: where the thread is held; NULL: in frame */
    /* what expressions may name besides, at most EXPRESSION_EXTRAS; and how many of them, from the
     * first on, are captured where the breakpoint doesn't say what is: then nothing else is */
    const struct expression_extra *extras;
    unsigned nextras, nshown;
    bool *holds; /* becomes true where one holds this thread; NULL: that is of no interest */
};

/* Hits one breakpoint, in the thread that got there, with the GIL of that interpreter and no
 * exception set. False: an exception is set, which a signal handler of the program raised
 * meanwhile; the program is to see it. */
bool hit_reached(struct interpreter *interpreter, struct breakpoint *breakpoint,
                 const struct reached *reached);

#define HIT_AT_ONCE 16 /* breakpoints at one place for which no memory is needed */

/* The breakpoints that a thread has come to. They may be taken out of their place while they hit,
 * so each is a reference. */
struct hit_list {
    struct breakpoint *few[HIT_AT_ONCE], **all;
    unsigned count;
};

/* Makes a list without breakpoints, with room for so many. False: there is no memory. */
bool hit_list_begin(struct hit_list *list, unsigned room);
/* Releases a list in which there are none. */
void hit_list_end(struct hit_list *list);
/* Hits all breakpoints of a list, in their order, and releases it. reached->line, if it is 0, is
 * filled in. False: an exception is set that the program is to see. */
bool hit_list_run(struct hit_list *list, struct interpreter *interpreter, struct reached *reached);

/* Waits until no thread is inside of hit_reached() any more, for at most HIT_LEAVE_NS. Without the
 * GIL. Whether all have left: who has the GIL of an interpreter from then on knows that none of its
 * threads is in a callback of ours. */
bool hit_wait(void);
/* hit_forget_removed() forgets what was compiled for breakpoints that are removed, hit_leave() all
 * that was compiled, unless a thread is inside. With the GIL of that interpreter. */
void hit_forget_removed(struct interpreter *interpreter);
void hit_leave(struct interpreter *interpreter);
/* In a child after fork: only the thread that forked may be inside. */
void hit_forget(void);
