/* What there is in an interpreter's table of places, for places.c, which keeps it,
 * and arming.c, which fills it. */
#pragma once

#include "agent/breakpoint/places.h"

#define PLACES_FILTER 4096u /* bits */

struct place_list;
struct armed;
struct raise;

struct places {
    unsigned forks;            /* fork_count() when it was made */
    struct place_list **lists; /* a hash of what is at one place, and ... */
    struct armed **armed;      /* ... of code objects with something in them; both have nbuckets */
    size_t nbuckets, count;
    struct breakpoint **wanted; /* of kinds LINE, FUNCTION and RETURN: references */
    unsigned nwanted;
    struct breakpoint **raises; /* of kind RAISE: references */
    unsigned nraises;
    struct raise *raising; /* raise.h; NULL: no exception was seen yet */
    /* of the code object that came last; held, so that the next one's is known again */
    PyObject *file;
    bool file_wanted;
    uint64_t names[PLACES_FILTER / 64]; /* by a hash of the last parts of functions' names */
    char costs[PROTO_WORDS_MAX];        /* of listening, in words; "": nothing to speak of */
};

/* What is kept of an interpreter, the parent's in a child after fork, too; *NULL: nothing. */
struct places **places_kept(const struct interpreter *interpreter);
/* NULL: there is no memory. */
struct places *places_new(void);
/* 0; -EEXIST: it is there; -ENOMEM, -ENOSPC. */
int places_add(struct places *places, struct breakpoint *breakpoint, PyObject *code,
               enum place_event event, int line);
/* Takes those out that are of no use any more: of a code object that ends, or of
 * breakpoints that are removed. */
void places_take_out(struct places *places, const PyObject *gone);
/* Has what has changed in code objects take effect. -errno, with words or an exception set. */
int places_apply(struct interpreter *interpreter, struct places *places);
/* Takes out the code objects that nobody else refers to any more: where nobody
 * tells of their end. */
void places_sweep(struct interpreter *interpreter);
