/* Hearing what code does: one face before sys.monitoring (monitoring.h, CPython 3.12 on) and a
 * trace function (trace.h, 3.10 and 3.11).
 *
 * Whoever wants to hear is one `struct hearer`: what it does at each kind of event. It says of
 * which events it wants to be told, of all code or of some, and doesn't know which engine tells it.
 *
 * All with the GIL of the interpreter. */
#pragma once

#include "agent/interpreter/interpreter.h"
#include "agent/wire/proto.h"

/* Who hears, in the order in which they are called where several hear of one event: those that run
 * code of the program come behind the one that doesn't. The first two share a tool id of
 * sys.monitoring. */
enum hearer_id { HEARER_EXCEPTIONS, HEARER_BREAKPOINTS, HEARER_WATCHES, HEARER_STEPS, HEARERS };

enum hear_event {
    HEAR_START,   /* a function begins */
    HEAR_RESUME,  /* a generator or coroutine goes on */
    HEAR_THROW,   /* the same, with an exception that is thrown in; before 3.12 it is HEAR_RESUME */
    HEAR_LINE,    /* a line begins */
    HEAR_JUMP,    /* a jump, which may lead back to the line that it is on; before 3.12 HEAR_LINE */
    HEAR_RETURN,  /* a function is about to return */
    HEAR_YIELD,   /* a generator or coroutine is about to give up control */
    HEAR_UNWIND,  /* an exception leaves a frame */
    HEAR_RAISE,   /* an exception is in a frame: raised there, or come up to there */
    HEAR_HANDLED, /* an exception is caught */
    HEAR_EVENTS
};
/* A set of them, as hear_begin() takes it. */
#define HEAR_BIT(event) (1u << (event))

/* What happens. Whoever calls holds all of it, but for what heard_frame() finds. */
struct heard {
    enum hear_event event;
    PyFrameObject *frame; /* NULL: heard_frame() finds it */
    PyObject *code;
    int line;            /* of HEAR_LINE, else 0 */
    int from, to;        /* of HEAR_JUMP: offsets of instructions [bytes] */
    PyObject *value;     /* what is returned or yielded, or the exception; NULL: there is none */
    PyObject *traceback; /* of HEAR_RAISE: its newest entry is the frame's. NULL: none yet */
};

/* The frame in which it happens, borrowed; from 3.12 on it may have to be made. NULL: no memory. */
static inline PyFrameObject *heard_frame(const struct heard *heard)
{
    return heard->frame ? heard->frame : PyEval_GetFrame();
}

enum hear_answer {
    HEAR_ON,
    /* This event is of no interest here any more, until hear_code() is called for the code. It
     * holds for an event that was asked for as local and that no other hearer is told of by the
     * same tool id; any other is told of all the same. */
    HEAR_DISABLE,
    HEAR_RAISED, /* an exception is set that the program is to see */
};

/* Is called in the thread in which it happens, without an exception set. That thread tells of
 * nothing meanwhile. */
typedef enum hear_answer hear_function(struct interpreter *interpreter, const struct heard *heard);

/* What a hearer wants of a code object in a thread. */
enum hear_interest {
    HEAR_NEVER,   /* nothing, in no thread, before hear_again() */
    HEAR_NOT_NOW, /* nothing, this time */
    HEAR_NOW,     /* to hear of this frame */
};

struct hearer {
    enum hearer_id id;
    const char *purpose;            /* what it hears for: "stop at code" */
    hear_function *on[HEAR_EVENTS]; /* NULL: that is never asked for */
    /* Is asked before 3.12, also of threads other than the calling one. It says what hear_code()
     * was told, but may tell threads apart, and lets nobody else have the GIL. NULL: HEAR_NEVER. */
    enum hear_interest (*wants)(struct interpreter *interpreter, PyThreadState *state,
                                PyObject *code);
    /* Is told of code that is loaded while it hears; NULL: it doesn't want to know. whole: all that
     * is defined in it is new as well, and isn't told of by itself: before 3.12, where code is told
     * of as it is entered first, so it may have been there before. */
    void (*code_made)(struct interpreter *interpreter, PyObject *code, bool whole);
    /* Is told of code that ends, where hear_tells_of_ends(). */
    void (*code_gone)(struct interpreter *interpreter, PyObject *code);
};

/* What has to be tried on a thread of ours, before a thread of the program that is held may call
 * hear_begin(). No exception is set afterwards. */
void hear_learn(void);
/* Has a hearer called at the events of `everywhere` of all code, and at those of `local` of the
 * code that hear_code() names. Again, where it hears already: then what is asked for now takes the
 * place of that. Others that it has a function for may be told as well, where that costs nothing.
 * 0, or 1: what hear_code() named before is lost; with words of what it costs, "": nothing to speak
 * of. -EBUSY: other tools have all ids of sys.monitoring; -EOPNOTSUPP, or -errno of
 * cpython/thread_states.h: with words; -EIO with an exception set. Then it hears of some of it, or
 * of nothing any more, until hear_end(). */
int hear_begin(struct interpreter *interpreter, const struct hearer *hearer, unsigned everywhere,
               unsigned local, char words[PROTO_WORDS_MAX]);
/* Which events of a code object are wanted now, of those that were asked for as local; 0: none.
 * What was said to be of no interest there (HEAR_DISABLE) is again. Before 3.12 that takes effect
 * with hear_again(), hear_begin(), or the end of code_made(). 0; -EIO with an exception set. */
int hear_code(struct interpreter *interpreter, const struct hearer *hearer, PyObject *code,
              unsigned events);
/* What is wanted has changed, of code or of threads: those are looked at again. No exception is set
 * afterwards. */
void hear_again(struct interpreter *interpreter);
/* Whether the end of code is told of: else whoever keeps what it knows of code has to hold it. */
bool hear_tells_of_ends(void);
/* Whether jumps are told of: else a loop on one line begins that line again (HEAR_LINE). */
bool hear_tells_of_jumps(void);
/* Whether HEAR_UNWIND says which exception it is; else it may not be known. */
bool hear_tells_of_unwinds(void);
/* Whether of a function that is all on one line only the start may be told of, and not the line. */
bool hear_may_omit_line(void);
/* Whether a hearer that begins to hear while another one is told of an event is told of it, too. */
bool hear_tells_who_begins(void);
/* The hearer hears of nothing any more. No exception is set afterwards. */
void hear_end(struct interpreter *interpreter, const struct hearer *hearer);
