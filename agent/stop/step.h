/* Stopping a thread at a line that no breakpoint is at: steps, `pause`, and
 * where a watchpoint was hit.
 *
 * A step follows its thread: one code object at a time is watched, that of the frame that it waits
 * for (next, finish, return, until), or of the innermost one (step, pause), which changes as
 * functions are entered and left. From 3.12 on these are local events of a tool id of its own in
 * sys.monitoring, so that lines that breakpoints have had enough of (DISABLE) are seen; before,
 * monitor/trace.h.
 *
 * Generators and coroutines: `next`, `finish` and the like mean the frame, however often
 * it gives up control before. */
#pragma once

#include "agent/interpreter/interpreter.h"
#include "agent/wire/proto.h"

/* Where a held thread is. */
struct step_place {
    PyFrameObject *frame; /* borrowed */
    bool returning;       /* it is about to leave the frame */
    int skip; /* of this line of the frame it may be told yet, which doesn't count; 0: none */
    PyObject *value; /* borrowed; what it is about to return; NULL: nothing */
    uint64_t here;   /* number of the open file that the step lives as long as; 0: of none */
};

/* This thread, which is held there, is to stop again: verb is any but THREAD_CONTINUE, THREAD_JUMP
 * and THREAD_PAUSE; line: of THREAD_UNTIL. With the GIL. -errno with words: it can't. */
int step_from(struct interpreter *interpreter, const struct step_place *place,
              enum thread_verb verb, int line, uint64_t for_ns, char words[PROTO_WORDS_MAX]);
/* Every thread, or, if it isn't 0, the one with that pthread_t, stops at the next line that it
 * runs. here: as of struct step_place. With the GIL. *found: how many of them there are here.
 * -errno with words. */
int step_pause(struct interpreter *interpreter, uint64_t thread, uint64_t for_ns, uint64_t here,
               size_t *found, char words[PROTO_WORDS_MAX]);
/* A thread, which may be another one, by PyThreadState_GetID(), stops at the next line that it
 * runs, in `frame`, its innermost, or elsewhere, because of a watchpoint. With the GIL. -errno. */
int step_stop_soon(struct interpreter *interpreter, uint64_t thread, PyFrameObject *frame,
                   uint32_t id, uint64_t for_ns, uint64_t here);
/* Every thread of this interpreter but the calling one stops at the next line that it runs, because
 * of a breakpoint, which is to hold the calling one. With the GIL. -errno: some of them don't. */
int step_pause_others(struct interpreter *interpreter, uint32_t id, uint64_t for_ns, uint64_t here);
/* Gives up what was to stop threads because of a breakpoint, which is removed. With the GIL. */
void step_removed(struct interpreter *interpreter, uint32_t id);
/* This thread stops for another reason: its step that is under way ends with that. Whether there
 * was one. With the GIL. */
bool step_end(struct interpreter *interpreter);
/* Gives up all that are under way, soon. Any thread, without the GIL. */
void step_cancel(void);
/* An open file is closed, the number-th one. Whether step_tidy() is to follow. With the agent's
 * lock. */
bool step_release(uint64_t number);
/* Gives up the steps that live as long as files which are closed (hold_is_released()). With the GIL
 * of the main interpreter, which is given up meanwhile; leaves no exception. */
void step_tidy(struct interpreter *interpreter);
/* Gives up all steps. With the GIL of that interpreter; leaves no exception. */
void step_leave(struct interpreter *interpreter);
