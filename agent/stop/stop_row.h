/* The row in `hits` of a thread that is held: where it is, and when it went on. */
#pragma once

#include "agent/record/ring.h"
#include "agent/stop/hold.h"
#include "schema/rows.h"

/* Fills in the place of a frame of this thread: `func`, `file`, `stack`. The texts are good while
 * the GIL is held. No exception is set before and after. */
void stop_row_place(struct interpreter *interpreter, PyFrameObject *frame, PyObject *code,
                    struct hits_row *row, char stack[RING_TEXT_MAX]);

/* Appends a row for a stop that is no breakpoint's (a step, `pause`, a crash). frame and code,
 * borrowed: of this thread; NULL: none. line 0: not known. value: what is returned; NULL: nothing.
 * *ticket: by which stop_hold() patches it. Leaves no exception. False: there is no ring. */
bool stop_row_write(struct interpreter *interpreter, PyFrameObject *frame, PyObject *code, int line,
                    PyObject *value, struct ring_ticket *ticket);

/* hold_thread(), whose row says afterwards when the thread went on, or that it could not be held.
 * ticket NULL: it has no row. */
bool stop_hold(struct interpreter *interpreter, const struct hold *hold,
               const struct ring_ticket *ticket);

/* Gives up what is remembered of an interpreter's code, with its GIL; leaves no exception. */
void stop_row_leave(struct interpreter *interpreter);
