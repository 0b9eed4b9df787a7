/* The steps that are under way in an interpreter, under its GIL: what step.c and what hears for it (step_hear.c) share. */
#pragma once

#include "agent/step.h"

struct step {
    uint64_t thread;          /* PyThreadState_GetID() */
    unsigned turn;            /* of step_cancel() */
    enum thread_verb verb;    /* THREAD_STEP: in any frame */
    enum stop_why why;
    uint32_t id;              /* of the watchpoint */
    struct ring_ticket ticket; /* of its row */
    uint64_t for_ns;
    PyObject *frame;          /* owned; of THREAD_NEXT and THREAD_FINISH */
    PyObject *code;           /* owned: that is watched now; NULL: none */
    PyObject *caller;         /* owned: of a watchpoint, code that is watched besides; NULL: none */
    int skip;                 /* struct step_place; until it is told of a line */
    const void *skip_frame;   /* no more than a number */
};

struct steps {
    struct step *all;
    size_t count, room;
    const struct interpreter *hears; /* events of it come; NULL: none */
    unsigned tool;            /* monitoring.turn, when they were watched */
};

enum left { LEFT_RETURNED, LEFT_YIELDED, LEFT_UNWOUND };

/* What happens in a thread. `frame` NULL: it is the innermost one. False: an exception is set that the program is to see. */
bool steps_entered(struct interpreter *interpreter, PyFrameObject *frame, PyObject *code, bool is_start);
bool steps_line(struct interpreter *interpreter, PyFrameObject *frame, PyObject *code, int line);
bool steps_left(struct interpreter *interpreter, PyFrameObject *frame, PyObject *code, enum left how, PyObject *value);
struct steps *steps_of(const struct interpreter *interpreter);

/* ---- step_hear.c ---- */

/* Has all events come that the steps need, and no others. -errno with words. No exception is set afterwards. */
int steps_hear(struct interpreter *interpreter, char words[PROTO_WORDS_MAX]);
/* A code object is watched from now on; or, if it isn't any step's any more, not. */
void steps_watch(struct interpreter *interpreter, PyObject *code);
