/* Breakpoints of kind RAISE: each exception hits them once, however many frames it leaves.
 *
 * With the GIL of the interpreter. */
#pragma once

#include "agent/interpreter/interpreter.h"

struct raise; /* what was seen in one interpreter */
struct places;

/* Lets those breakpoints hit that want an exception, unless it was seen before. The exception was
 * raised in `frame`, a frame of this thread, or has come up to it. traceback: the exception's,
 * whose newest entry is that of the frame; NULL: none. The caller holds all arguments. False: an
 * exception is set that the program is to see. */
bool raise_seen(struct interpreter *interpreter, PyFrameObject *frame, PyObject *exception,
                PyObject *traceback);
/* Lets those breakpoints hit that want an exception as it leaves code (`leaving`): it is about to
 * leave `frame`, a frame of this thread. The caller holds both. False: as raise_seen(). */
bool raise_left(struct interpreter *interpreter, PyFrameObject *frame, PyObject *exception);
/* Whether there is a class of exceptions that `where` means, which may be "": any. No exception is
 * set afterwards. */
bool raise_knows(struct places *places, const char *where);
/* NULL is fine. */
void raise_free(struct raise *raising);
