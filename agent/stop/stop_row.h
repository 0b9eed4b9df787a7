/* Holding a thread, and its row in `hits`: where it is, and when it went on. Who reads the row, or
 * the event that a daemon makes of it, finds the thread held. */
#pragma once

#include "agent/record/ring.h"
#include "agent/stop/hold.h"
#include "schema/rows.h"

/* Fills in the place of a frame of this thread: `func`, `file`, `stack`. The texts are good while
 * the GIL is held. No exception is set before and after. */
void stop_row_place(struct interpreter *interpreter, PyFrameObject *frame, PyObject *code,
                    struct hits_row *row, char stack[RING_TEXT_MAX]);

/* Holds this thread where it hit. row: all but `stopped` and `resumed`, which is appended too if
 * the thread can't be held. False: as hold_thread(). */
bool stop_hold_hit(struct interpreter *interpreter, const struct hold *hold, struct hits_row *row);

/* Holds this thread where nothing hit: the end of a step, `pause`, a crash, the next line after a
 * watched value was written. frame and code, borrowed: of this thread; NULL: none. value: what is
 * returned; NULL: nothing. It has a row if it can be held. False: as hold_thread(). */
bool stop_hold(struct interpreter *interpreter, const struct hold *hold, PyFrameObject *frame,
               PyObject *code, PyObject *value);

/* Gives up what is remembered of an interpreter's code, with its GIL; leaves no exception. */
void stop_row_leave(struct interpreter *interpreter);
