/* Where breakpoints are armed in one interpreter: code objects and lines of them.
 *
 * Found by name among the code that is loaded (codes.h), and among what is loaded later. From 3.12 on they are local
 * events of sys.monitoring (arm.c), before that what a trace function looks up (arm_trace.c). */
#pragma once

#include "agent/breakpoint.h"
#include "agent/interpreter.h"

enum place_event { PLACE_LINE, PLACE_START, PLACE_RETURN };

/* One breakpoint in one code object. */
struct place {
    struct place *next;       /* with the same code, event and line */
    struct breakpoint *breakpoint; /* a reference */
    PyObject *code;           /* a reference */
    enum place_event event;
    int line;                 /* of PLACE_LINE, else 0 */
};

struct places;

/* What is at a place, of enabled ones: the first of a list, valid while the GIL is held; NULL: nothing. Fast: no more than a
 * hash. */
const struct place *places_at(const struct places *places, const PyObject *code, enum place_event event, int line);
/* Whether there is anything in a code object. */
bool places_in(const struct places *places, const PyObject *code);

/* Finds where a breakpoint belongs in this interpreter and arms it there. note: appended to, for people. With the GIL; 0, or
 * -errno with nothing armed. */
int places_arm(struct interpreter *interpreter, struct breakpoint *breakpoint, char note[PROTO_WORDS_MAX]);
void places_disarm(struct interpreter *interpreter, struct breakpoint *breakpoint);
/* Of that interpreter; NULL: nothing is armed there. With its GIL. */
struct places *places_here(const struct interpreter *interpreter);
