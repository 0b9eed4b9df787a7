/* Threads that are held: by `stop`, at the end of a step, by `pause`, by `on-crash stop`.
 *
 * A held thread has given up the GIL and waits in here. It runs what it is told to: code of evals that are meant for it, in
 * its frames, and Python's signal handlers where it is the main thread, every 50 ms. It goes on when a daemon says so, at its
 * deadline, when there is no daemon any more, when its interpreter begins to end (exit.c), at detach, and in a child after
 * fork. Where no daemon is connected no thread is held. */
#pragma once

#include "agent/interpreter.h"
#include "agent/proto.h"
#include "agent/requests.h"

struct evaluation;

struct park {
    enum stop_why why;
    uint32_t id;              /* of the breakpoint; 0: none */
    uint64_t for_ns;          /* at most; 0: PROTO_STOP_NS */
    PyFrameObject *frame;     /* borrowed; where it is held; NULL: STOP_CRASH */
    int line;
    PyObject *value;          /* borrowed: what is being returned, or the exception of a crash; NULL */
    bool may_jump;            /* it is at the beginning of a line */
};

/* Holds this thread; with the GIL, which it has again afterwards. *resumed: CLOCK_REALTIME [s], 0: it could not be held.
 * False: an exception is set, of a signal handler of the program. */
bool park_thread(struct interpreter *interpreter, const struct park *park, double *resumed);

/* This thread may come to be held, or was: until it has left this library, park_end() waits for it. By 1 or -1. */
void park_inside(int by);

/* For what a held thread is told to run: where it is held, NULL: it isn't; the frame, or the exception, borrowed. */
const struct park *park_own(void);
PyObject *park_here(void);
/* It goes on, once it has run that. why: a literal, the name of the row in events. */
void park_go(const char *why);
/* It is at another line now. */
void park_jumped(int line);
/* The line of which a step from there may be told, without having got to it; 0: none. */
int park_told_line(void);

/* Whether a thread is held, by the kernel's number. Any thread. */
bool park_holds(int32_t tid);
/* The same by PyThreadState_GetID(). */
bool park_holds_state(uint64_t state);

/* Lets a thread go on, or, 0, all, and gives up all steps. -ESRCH with words. Any thread, without the GIL. */
int park_continue(int32_t tid, char words[PROTO_WORDS_MAX]);
/* Runs an EVAL or THREAD in the held thread that it is meant for, if there is one, and waits for that. *to_answer: nobody
 * else answers it. False: it is meant for none. Python's thread, without the GIL. */
bool park_run(struct request *request, struct evaluation *out, bool *to_answer);


/* Lets all go on: the daemon has gone. Any thread, without the GIL. */
void park_release(void);
/* The same for one interpreter, that begins to end. With or without the GIL. */
void park_leave(const struct interpreter *interpreter);
/* Detach (agent.detaching): the same, and waits, without the GIL, until all have left. False: some don't get the GIL for it,
 * and the library has to stay. */
bool park_end(void);
void park_forget(void); /* in a child after fork */
