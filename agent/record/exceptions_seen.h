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

#define SIGHTING_WAYS 4u      /* so many exceptions with the same hash are known */
#define SIGHTING_SETS 256u    /* a power of two */
#define SIGHTING_OWNERS 1024u /* a power of two */
#define SIGHTING_DEPTH 64     /* entries of a traceback that are looked at */

struct ring;

enum sighting_fate {
    FATE_UNKNOWN, /* it is under way, or C code got it */
    FATE_HANDLED, /* Python code caught it */
    FATE_LEFT,    /* it left its thread or task */
    FATE_GONE,    /* another one is at its address that is no row */
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

/* Those with one hash; free: 0. */
struct sighting_set {
    const PyObject *exceptions[SIGHTING_WAYS]; /* by which one is found */
    struct sighting all[SIGHTING_WAYS];
    unsigned turn; /* whose place the next one takes */
};

struct sightings {
    struct sighting_set sets[SIGHTING_SETS];
    struct sighting_owner owners[SIGHTING_OWNERS];
    struct attribute next, frame, lasti; /* of traceback */
};

/* With the GIL; no exception is set afterwards. */
/* 0 or -EOPNOTSUPP. */
int sightings_init(struct sightings *sightings);
/* What was seen at the address of an exception, be it that or an earlier one; NULL: nothing. */
struct sighting *sighting_find(struct sightings *sightings, const PyObject *exception);
/* A new one, which takes the place of the one that was found at that address, if any, else
 * of one whose fate is known. */
struct sighting *sighting_add(struct sightings *sightings, const PyObject *exception,
                              struct sighting *there);
/* The next older entry of a traceback, borrowed from it; NULL: none. */
PyObject *sighting_older(const struct sightings *sightings, PyObject *traceback);
/* Whether what was seen is the exception that is at its address now. older: its
 * traceback below the newest entry. */
bool sighting_is(const struct sightings *sightings, const struct sighting *sighting,
                 PyObject *older);
/* Notes the newest entry: of that code, at that instruction. */
static inline void sighting_note(struct sighting *sighting, const PyObject *traceback,
                                 const PyObject *code, long lasti)
{
    sighting->traceback = traceback;
    sighting->code = code;
    sighting->lasti = lasti;
}
/* Notes whom the newest entry was made for. */
void sighting_own(struct sightings *sightings, const PyObject *traceback,
                  const PyObject *exception);
/* The instruction of the newest entry, [bytes]; -1: not known. */
long sighting_lasti(const struct sightings *sightings, PyObject *traceback);
/* Whether the newest entry is of that code. */
bool sighting_is_of(const struct sightings *sightings, PyObject *traceback, PyObject *code);
/* The code and the instruction, [bytes], of the oldest entry, borrowed from it; NULL: not known. */
PyObject *sighting_origin(const struct sightings *sightings, PyObject *traceback, long *lasti);
/* Forgets them: rows are somewhere else from now on. */
void sightings_forget(struct sightings *sightings);
void sightings_clear(struct sightings *sightings);
