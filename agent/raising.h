/* Exceptions, for breakpoints of kind RAISE: which of them an exception is of interest to, once.
 *
 * With the GIL of the interpreter. */
#pragma once

#include "agent/interpreter.h"

struct raising; /* of an interpreter: what was seen */
struct places;

/* An exception is in a frame of this thread: raised there, or come up to there. traceback: what it has got, the entry of the frame
 * being the newest one; NULL: none. Lets the breakpoints hit that want it, unless it was seen before. All arguments are
 * held by the caller. False: an exception is set that the program is to see. */
bool raising_seen(struct interpreter *interpreter, PyFrameObject *frame, PyObject *exception, PyObject *traceback);
/* NULL is fine. */
void raising_free(struct raising *raising);
