/* Where breakpoints are armed in one interpreter: code objects and lines of
 * them, and what is raised.
 *
 * Found by name among the code that is loaded (location.h), and among what is loaded later. Code
 * objects are not held: where CPython tells of their end (3.12) what is armed in them goes with
 * them. How an interpreter is made to report is another matter (listen.h).
 *
 * All with the GIL of that interpreter. */
#pragma once

#include "agent/breakpoint/breakpoint.h"
#include "agent/interpreter/interpreter.h"

#define PLACES_MAX 65536 /* in an interpreter */

enum place_event { PLACE_LINE, PLACE_START, PLACE_RETURN };

/* One breakpoint in one code object. */
struct code_place {
    struct code_place *next;       /* with the same code, event and line */
    struct breakpoint *breakpoint; /* a reference */
    PyObject *code;
    enum place_event event;
    int line;   /* of PLACE_LINE, else 0 */
    bool again; /* CPython also tells of it where it is in the midst of it: places_again() */
};

struct places;
struct raise;

/* The places of an interpreter; NULL: nothing is armed there, or this is a child after fork. */
struct places *places_here(const struct interpreter *interpreter);
/* What is at a place: the first of a list, valid while the GIL is held; NULL:
 * nothing. Fast: no more than a hash. */
const struct code_place *places_at(const struct places *places, const PyObject *code,
                                   enum place_event event, int line);
/* Whether the instruction at an offset, [bytes], is in the midst of the line of a
 * place: then it isn't there anew. */
bool places_again(const struct places *places, const struct code_place *place, int offset);
/* Which events of a code object are of interest: bits of enum place_event; 0:
 * there is nothing in it. */
unsigned places_in(const struct places *places, const PyObject *code);
/* Breakpoints of kind RAISE, or HOOK. *count: how many. */
struct breakpoint *const *places_raises(const struct places *places, unsigned *count);
struct breakpoint *const *places_hooks(const struct places *places, unsigned *count);
/* Where raise.h keeps what it has seen; *NULL: nothing yet. */
struct raise **places_raise(struct places *places);
/* Visits all code objects of an interpreter with places in which something is: the parent's in a
 * child after fork, too. */
void places_each(const struct interpreter *interpreter,
                 void (*visit)(void *arg, PyObject *code, unsigned events), void *arg);

/* What came of arming one. */
struct place_report {
    unsigned places, files; /* found in this interpreter */
    int line;               /* another line that is used; 0: none */
    bool known;             /* the file is there, but no such line */
    const char *costs;      /* what else to know, good while the GIL is held; NULL: nothing */
};

/* Whether a breakpoint that is at code has found some, or a class of exceptions, or the hook. */
static inline bool place_report_found(const struct place_report *report,
                                      const struct breakpoint *breakpoint)
{
    bool is_named = breakpoint->kind == BREAKPOINT_RAISE || breakpoint->kind == BREAKPOINT_HOOK;
    return report->places || (is_named && report->known);
}

/* Finds where breakpoints belong in this interpreter and arms them there, now and later, but for
 * those that are switched off. reports: one for each. 0, or -errno, with words or an exception set,
 * and some of them armed. Nothing of the program's is run. */
int places_arm(struct interpreter *interpreter, struct breakpoint *const *breakpoints,
               unsigned count, struct place_report *reports, char words[PROTO_WORDS_MAX]);
/* Takes them out: those whose `removed` or `disabled` is set are found by that. */
void places_disarm(struct interpreter *interpreter);
/* A code object has come into being, or ends, as struct hearer has it. No exception is set before
 * and after by the first. */
void places_code_made(struct interpreter *interpreter, PyObject *code, bool whole);
void places_code_gone(struct interpreter *interpreter, PyObject *code);
/* Takes all of it out. Leaves no exception. */
void places_leave(struct interpreter *interpreter);
