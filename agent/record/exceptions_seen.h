/* Which exceptions have been seen, so that each is one row however often it is raised:
 * again in every frame that it leaves, at the end of a `finally`, by `raise e`, by a
 * future that somebody waits for.
 *
 * No reference is kept, since that would keep whole frames alive. What tells an exception from a
 * later one at the same address is its traceback: an exception that goes on has what was its newest
 * entry when it was last seen, of the same code at the same instruction, somewhere below the one
 * that it has got now; one that is new hasn't. It may have been given another one's traceback,
 * whose entries are at addresses that were in use before, too: so for each entry it is known which
 * exception it was made for. An exception whose traceback was replaced counts as a new one. */
#pragma once

#include "agent/cpython/text.h"
#include "agent/record/ring.h"

#define EXCEPTIONS_SEEN_WAYS 4u      /* exceptions with the same hash that are remembered */
#define EXCEPTIONS_SEEN_SETS 256u    /* a power of two */
#define EXCEPTIONS_SEEN_OWNERS 1024u /* a power of two */
#define EXCEPTIONS_SEEN_DEPTH 64     /* entries of a traceback that are looked at */

struct ring;

enum exception_fate {
    FATE_UNKNOWN, /* the exception is under way, or C code got it */
    FATE_HANDLED, /* Python code caught it */
    FATE_LEFT,    /* it left its thread or task */
    FATE_GONE,    /* another exception, which has no row, is at its address */
};

struct seen_exception {
    const PyObject *exception;    /* not held */
    const void *traceback, *code; /* its newest entry and the code of that: not held */
    long lasti;                   /* [bytes] of the instruction there */
    const struct ring *ring;      /* that its row is in */
    struct ring_ticket ticket;
    enum exception_fate fate;
};

/* Which exception an entry of a traceback was made for. */
struct seen_exception_owner {
    const void *traceback;
    const PyObject *exception;
};

/* The exceptions with one hash. A free entry is NULL. */
struct seen_exception_set {
    const PyObject *exceptions[EXCEPTIONS_SEEN_WAYS]; /* which ones `all` describes */
    struct seen_exception all[EXCEPTIONS_SEEN_WAYS];
    unsigned turn; /* the entry that is used next */
};

struct exceptions_seen {
    struct seen_exception_set sets[EXCEPTIONS_SEEN_SETS];
    struct seen_exception_owner owners[EXCEPTIONS_SEEN_OWNERS];
    struct attribute next, frame, lasti; /* of traceback */
};

/* All of these functions want the GIL, and leave no exception. */

/* 0, or -EOPNOTSUPP: this interpreter's tracebacks can't be read. */
int exceptions_seen_init(struct exceptions_seen *all);
/* What was seen at the address of an exception: that one, or an earlier one which was there
 * before; see seen_exception_is(). NULL: there is none. */
struct seen_exception *exceptions_seen_find(struct exceptions_seen *all, const PyObject *exception);
/* Adds an exception. It takes the entry `there`, which exceptions_seen_find() gave; NULL: that of
 * an exception whose fate is known. */
struct seen_exception *exceptions_seen_add(struct exceptions_seen *all, const PyObject *exception,
                                           struct seen_exception *there);
/* The next older entry of a traceback, borrowed from it; NULL: none. */
PyObject *exceptions_seen_older(const struct exceptions_seen *all, PyObject *traceback);
/* Whether what was seen is the exception that is at its address now. older: that exception's
 * traceback below its newest entry. */
bool seen_exception_is(const struct exceptions_seen *all, const struct seen_exception *seen,
                       PyObject *older);
/* Notes the newest entry of a traceback, its code and its instruction [bytes]. */
static inline void seen_exception_note(struct seen_exception *seen, const PyObject *traceback,
                                       const PyObject *code, long lasti)
{
    seen->traceback = traceback;
    seen->code = code;
    seen->lasti = lasti;
}
/* Notes the exception for which the newest entry was made. */
void exceptions_seen_own(struct exceptions_seen *all, const PyObject *traceback,
                         const PyObject *exception);
/* The instruction of the newest entry, [bytes]; -1: not known. */
long exceptions_seen_lasti(const struct exceptions_seen *all, PyObject *traceback);
/* Whether the newest entry is of that code. */
bool exceptions_seen_is_of(const struct exceptions_seen *all, PyObject *traceback, PyObject *code);
/* The code and the instruction, [bytes], of the oldest entry, borrowed from it; NULL: not known. */
PyObject *exceptions_seen_origin(const struct exceptions_seen *all, PyObject *traceback,
                                 long *lasti);
/* Forgets all exceptions, since rows go to another ring from now on. */
void exceptions_seen_forget(struct exceptions_seen *all);
/* Gives up what exceptions_seen_init() made. */
void exceptions_seen_clear(struct exceptions_seen *all);
