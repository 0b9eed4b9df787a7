/* That a thread gets to where breakpoints are. They may be taken out of there while
 * they hit, so they are held. */
#pragma once

#include "agent/breakpoint/hit.h"
#include "agent/breakpoint/places.h"

#define REACH_AT_ONCE 16 /* breakpoints at one place for which no memory is needed */

struct reach {
    struct breakpoint *few[REACH_AT_ONCE], **all;
    unsigned count;
};

/* Those of a list of places, NULL: none, that aren't over; lines: only those of kind LINE. Whether
 * there are any, which reach_hit() is to be called for. */
bool reach_take(struct reach *reach, const struct code_place *place, bool lines);
/* All of them hit, in their order, and are let go. What is 0 in `reached` is filled in: line.
 * False: an exception is set that the program is to see. */
bool reach_hit(struct reach *reach, struct interpreter *interpreter, struct reached *reached);
