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

#define SIGHTING_WAYS 4u      /* exceptions with the same hash that are remembered */
#define SIGHTING_SETS 256u    /* a power of two */
#define SIGHTING_OWNERS 1024u /* a power of two */
#define SIGHTING_DEPTH 64     /* entries of a traceback that are looked at */

struct ring;

enum sighting_fate {
    FATE_UNKNOWN, /* the exception is under way, or C code got it */
    FATE_HANDLED, /* Python code caught it */
    FATE_LEFT,    /* it left its thread or task */
    FATE_GONE,    /* another exception, which has no row, is at its address */
};

struct sighting {
    const PyObject *exception;    /* not held */
    const void *traceback, *code; /* its newest entry and the code of that: not held */
    long lasti;                   /* [bytes] of the instruction there */
    const struct ring *ring;      /* that its row is in */
    struct ring_ticket ticket;
    enum sighting_fate fate;
};

/* Which exception an entry of a traceback was made for. */
struct sighting_owner {
    const void *traceback;
    const PyObject *exception;
};

/* The sightings of exceptions with one hash. A free place is NULL. */
struct sighting_set {
    const PyObject *exceptions[SIGHTING_WAYS]; /* whose sightings these are */
    struct sighting all[SIGHTING_WAYS];
    unsigned turn; /* the place that the next sighting takes */
};

struct sightings {
    struct sighting_set sets[SIGHTING_SETS];
    struct sighting_owner owners[SIGHTING_OWNERS];
    struct attribute next, frame, lasti; /* of traceback */
};

/* All of these functions want the GIL, and leave no exception. */

/* 0, or -EOPNOTSUPP: this interpreter's tracebacks can't be read. */
int sightings_init(struct sightings *sightings);
/* The sighting at the address of an exception: of that one, or of an earlier one which was there
 * before; see sighting_is(). NULL: there is none. */
struct sighting *sighting_find(struct sightings *sightings, const PyObject *exception);
/* Adds a sighting of an exception. It takes the place of `there`, which sighting_find() gave, or
 * of one whose fate is known. */
struct sighting *sighting_add(struct sightings *sightings, const PyObject *exception,
                              struct sighting *there);
/* The next older entry of a traceback, borrowed from it; NULL: none. */
PyObject *sighting_older(const struct sightings *sightings, PyObject *traceback);
/* Whether a sighting is of the exception that is at its address now. older: that exception's
 * traceback below its newest entry. */
bool sighting_is(const struct sightings *sightings, const struct sighting *sighting,
                 PyObject *older);
/* Notes the newest entry of a traceback, its code and its instruction [bytes]. */
static inline void sighting_note(struct sighting *sighting, const PyObject *traceback,
                                 const PyObject *code, long lasti)
{
    sighting->traceback = traceback;
    sighting->code = code;
    sighting->lasti = lasti;
}
/* Notes the exception for which the newest entry was made. */
void sighting_own(struct sightings *sightings, const PyObject *traceback,
                  const PyObject *exception);
/* The instruction of the newest entry, [bytes]; -1: not known. */
long sighting_lasti(const struct sightings *sightings, PyObject *traceback);
/* Whether the newest entry is of that code. */
bool sighting_is_of(const struct sightings *sightings, PyObject *traceback, PyObject *code);
/* The code and the instruction, [bytes], of the oldest entry, borrowed from it; NULL: not known. */
PyObject *sighting_origin(const struct sightings *sightings, PyObject *traceback, long *lasti);
/* Forgets all sightings, since rows go to another ring from now on. */
void sightings_forget(struct sightings *sightings);
/* Gives up what sightings_init() made. */
void sightings_clear(struct sightings *sightings);
