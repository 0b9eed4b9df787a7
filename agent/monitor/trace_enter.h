/* Frames as they are entered, before 3.12: only those whose code is wanted are traced.
 *
 * While a frame is traced, CPython looks at each instruction of it whether a line begins there, and
 * so it does in all frames that are entered from there. So interpreters get a frame evaluation
 * function (PEP 523), which is called for each frame and has CPython's own one run it: it switches
 * tracing on for a frame that is wanted, and off for what such a frame calls, until that returns. A
 * frame that isn't wanted and isn't called by a traced one costs a look into a table; from 3.11 on
 * also what CPython otherwise saves for calls from Python to Python, which it doesn't make in C.
 *
 * Exceptions are told of without that, as long as there is a trace function; from then on the frame
 * is traced, and what it returns to, until that makes a call.
 *
 * Switching is per frame in C: CPython hands it on from a frame to those that it calls, and back to
 * its caller as it returns. Where a traced frame returns to one that isn't to be traced, that
 * notices at its next line, and switches it off. */
#pragma once

#include "agent/monitor/trace.h"

/* What there is in an interpreter. All have one GIL in these versions. */
struct trace {
    struct interpreter *interpreter;
    const struct hearer *hearers[HEARERS]; /* NULL: it doesn't hear */
    unsigned asked[HEARERS];               /* events that it asked for, of all code */
    bool hidden[HEARERS];        /* it wants code that CPython enters without asking anybody */
    bool loading;                /* a hearer is told of new code ... */
    bool found;                  /* ... and something of that is wanted */
    const PyThreadState *newest; /* the last one that was found to be traced */
    bool everywhere;             /* all threads are traced, whatever they run */
    bool raises;                 /* else all hear at least of exceptions */
    bool entered;                /* frames are heard of as they are entered */
    bool deep;                   /* ... which was given up for this: a thread's stack got short */
    /* threads could not be looked at: some may be traced that should not, or the reverse */
    bool late;
    const void *kept;   /* the caller of a frame that stays traced for the sake of older ones ... */
    unsigned kept_turn; /* ... at that trace_turn */
};

extern struct trace traces[INTERPRETERS_MAX];
extern unsigned trace_turn; /* how often it was arranged what is traced */

/* All with the GIL. */

/* The most that a hearer wants of code in a thread. entered: a frame of it is about to run, and the
 * code may have been loaded only now; else it runs already. Code of a module, a class or exec() is
 * asked for at each frame that is entered. */
enum hear_interest trace_wanted(struct trace *self, PyThreadState *state, PyObject *code,
                                bool entered);
/* trace_wanted() of a frame that is entered, whose code may have been asked for before. */
enum hear_interest trace_enter_wanted(struct trace *self, PyThreadState *state, PyObject *code);
bool trace_is_heard(const struct trace *self);
/* The frame of the calling thread that was last told of an exception: no more than a number. */
extern __thread const void *trace_raised;
/* Whether a frame, a new reference that is given up, or an older one has wanted code. */
bool trace_keeps(struct trace *self, PyThreadState *state, PyFrameObject *frame);
/* Sees to it that what hearers want is traced, and nothing else. How many threads have a trace
 * function of their own; or -errno of cpython/thread_states.h: threads are as they were. */
int trace_arrange(struct trace *self);

/* co_flags of a code object. No exception is set afterwards. */
int trace_enter_flags(PyObject *code);
/* -EOPNOTSUPP: it can't be done in this interpreter. No exception is set afterwards. */
int trace_enter_begin(struct trace *self);
void trace_enter_end(struct trace *self);
/* Whether a thread is inside, or may get there. */
bool trace_enter_remains(void);
