/* The steps that are under way in an interpreter, under its GIL: step.c, where they come and go,
 * and step_follow.c, which hears what their threads do, share them. */
#pragma once

#include "agent/stop/step.h"

struct step {
    uint64_t thread;       /* PyThreadState_GetID() */
    uint64_t paused;       /* of a pause: its pthread_t; else 0 */
    unsigned turn;         /* of step_cancel() */
    enum thread_verb verb; /* THREAD_STEP, in any frame, THREAD_NEXT, _FINISH or _RETURN */
    bool own;              /* of THREAD_STEP: not in libraries */
    int until;             /* of THREAD_NEXT: in `frame` from this line on; 0: at any */
    enum stop_why why;
    uint32_t id; /* of the watchpoint */
    uint64_t for_ns;
    uint64_t here;          /* of struct step_place */
    PyObject *frame;        /* owned; of all but THREAD_STEP */
    PyObject *code;         /* owned: that is watched now; NULL: none */
    PyObject *caller;       /* owned: of a watchpoint, code that is watched besides; NULL: none */
    PyObject *returned;     /* owned: of a function that it has left; NULL: nothing */
    int skip;               /* struct step_place; until it is told of a line */
    const void *skip_frame; /* no more than a number */
};

struct steps {
    struct step *all;
    size_t count, room;
    bool hears; /* events come */
};

/* ---- step.c ---- */

struct steps *steps_of(const struct interpreter *interpreter);
/* PyThreadState_GetID() of the calling one. */
uint64_t steps_own_thread(void);
/* NULL: it doesn't step. */
struct step *steps_find(struct steps *self, uint64_t thread);
bool steps_is_cancelled(const struct step *step);
/* From now on its thread is looked at in this code object, NULL: in none. */
void steps_look_at(struct interpreter *interpreter, struct step *step, PyObject *code);
/* It goes on in the caller of a frame that is left; where there is none it may be dropped. */
void steps_follow(struct interpreter *interpreter, struct step *step, PyFrameObject *frame);
/* What a function returned that it leaves; NULL: it raised. Returns what was there: the caller's to
 * give up, which may run code of the program. */
PyObject *steps_returned(struct step *step, PyObject *value);
/* Gives up what one held that was taken out. Runs code of the program; an exception that is set
 * stays. */
void steps_drop(struct step *taken);
/* Takes one out; what it holds is the caller's to give up, which may run code of the program. */
struct step steps_take_out(struct interpreter *interpreter, struct step *step);
/* Drops those that were cancelled, and those whose thread has ended. */
void steps_sweep(struct interpreter *interpreter);

/* ---- step_follow.c ---- */

/* Has all events come that the steps need, and no others. -errno with words. No
 * exception is set afterwards. */
int steps_hear(struct interpreter *interpreter, char words[PROTO_WORDS_MAX]);
/* A code object is watched from now on; or, if it isn't any step's any more, not. */
void steps_watch(struct interpreter *interpreter, PyObject *code);
