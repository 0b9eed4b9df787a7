/* Stopping a thread at a line that no breakpoint is at: steps, `pause`, and where a watchpoint was hit.
 *
 * From 3.12 on a tool id of its own in sys.monitoring, so that lines that breakpoints have had enough of (DISABLE) are
 * seen; before, trace.h. Events are on only while some thread steps, and where that does, for its frame's code only. */
#pragma once

#include "agent/interpreter.h"
#include "agent/proto.h"

/* This thread, which is held in `frame`, is to stop again: verb is THREAD_STEP, THREAD_NEXT or THREAD_FINISH. With the GIL.
 * -errno: it can't. */
int step_from(struct interpreter *interpreter, PyFrameObject *frame, enum thread_verb verb, uint64_t for_ns);
/* Every thread stops at the next line that it runs. With the GIL. -errno. */
int step_pause(struct interpreter *interpreter, uint64_t for_ns);
/* A thread, which may be another one, stops at the next line that it runs in `frame`, its innermost, or where that returns to,
 * because of a watchpoint. With the GIL. -errno. */
int step_stop_soon(struct interpreter *interpreter, PyThreadState *state, PyFrameObject *frame, uint32_t id, uint64_t for_ns);
/* Gives up all steps. With the GIL of that interpreter; leaves no exception. */
void step_leave(struct interpreter *interpreter);
void step_forget(void);
