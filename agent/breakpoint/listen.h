/* Hearing of code where breakpoints are (monitor/hear.h). What is heard is looked up in places.h,
 * and handed on to hit.h.
 *
 * With the GIL of the interpreter, in which there are places. */
#pragma once

#include "agent/breakpoint/places.h"

/* Has code told of; everywhere: HEAR_BIT() of HEAR_RAISE and HEAR_UNWIND: exceptions as well.
 * Again, where that has changed. words: on success, what it costs, for people, "": nothing to speak
 * of. 0; -errno, with words or an exception set. */
int listen_begin(struct interpreter *interpreter, unsigned everywhere, char words[PROTO_WORDS_MAX]);
/* What is of interest in a code object has changed to `events`, bits of enum place_event; with 0 it
 * may be at its end. 0; -errno with an exception set. */
int listen_code(struct interpreter *interpreter, PyObject *code, unsigned events);
/* Undoes all that; leaves no exception. */
void listen_end(struct interpreter *interpreter);
