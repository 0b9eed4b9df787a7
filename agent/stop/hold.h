/* Threads that are held: by `stop`, at the end of a step, by `pause`, by `on-crash stop`.
 *
 * A held thread has given up the GIL and waits in here. It runs what it is told to: code of evals
 * that are meant for it, in its frames, and Python's signal handlers where it is the main thread,
 * every 50 ms. It goes on when a daemon says so, at its deadline, when there is no daemon any more,
 * when its interpreter begins to end (interpreter/joining.c), at detach, and in a child after fork.
 * Where no daemon is connected no thread is held, but for those of `alone`. */
#pragma once

#include "agent/interpreter/guest.h"
#include "agent/monitor/hear.h"
#include "agent/wire/ring_format.h"
#include "agent/wire/proto.h"

#include <pthread.h>

/* Why and where a thread is to be held. */
struct hold {
    enum stop_why why;
    uint32_t id;          /* of the breakpoint; 0: none */
    uint64_t for_ns;      /* at most; 0: PROTO_STOP_NS */
    PyFrameObject *frame; /* borrowed; where it is held; NULL: STOP_CRASH */
    int line;
    PyObject *value;       /* borrowed: what is being returned, or the exception of a crash; NULL */
    enum hear_event event; /* that it is held in, HEAR_EVENTS: a call; with frame only */
    const bool *removed;   /* of the breakpoint: set before hold_removed(). NULL: there is none */
    bool alone;            /* with or without a daemon: the environment asks for it */
    uint64_t here;         /* number of the open file that it lives as long as; 0: of none */
    /* of an exception that holds it: its type and message; bytes NULL: there is none, or it isn't
     * known */
    struct ring_text exception, message;
    PyObject *returned; /* borrowed: what the function returned that `finish` has left; NULL */
};

/* Holds this thread; with the GIL, which it has again afterwards. begun: is called before the GIL
 * is given up, once whoever hears of it can tell the thread to go on, with the number of the stop;
 * not where it can't be held.
 * *resumed: CLOCK_REALTIME [s], 0: it could not be held. False: an exception is set, of a signal
 * handler of the program. */
bool hold_thread(struct interpreter *interpreter, const struct hold *hold,
                 void (*begun)(void *arg, uint32_t number), void *arg, double *resumed);

/* This thread may come to be held (by: 1), or was (-1): until it has left this library, hold_end()
 * waits for it. */
void hold_inside(int by);

/* Where this thread is held, for what it is told to run; NULL: it isn't held. */
const struct hold *hold_own(void);
/* held() of evaluate's _probe, for code that it runs: ("__return__", what is, or was, returned),
 * ("__exception__", what was raised), or (None, None). As the `lend` of struct part. */
int hold_lend(struct guest *guest);
/* Has this thread, which is held, go on once it has run what it was told to. why: a literal, the
 * name of the row in events. */
void hold_go(const char *why);
/* This thread, which is held, is at another line now. */
void hold_jumped(int line);
/* The line of which a step from there may be told, without having got to it; 0: none. */
int hold_told_line(void);

/* Whether a thread is held, by the kernel's number. Any thread. */
bool hold_has(int32_t tid);
/* Whether a thread is held, by PyThreadState_GetID(). */
bool hold_has_state(uint64_t state);

/* Lets a thread go on, or, 0, all, and gives up all steps. -ESRCH with words.
 * Any thread, without the GIL. */
int hold_continue(int32_t tid, char words[PROTO_WORDS_MAX]);
/* Lets those go on that a breakpoint holds, which is removed. why: a literal, the name of the row
 * in events. Any thread. */
void hold_removed(uint32_t id, const char *why);
/* Lets the threads go on that are held with this `removed`, unless it is false. Any thread. */
void hold_let_go(const bool *removed);
/* An open file is closed: lets those go on that are held as long as it is open, and holds none for
 * it any more. True: step_tidy() is to follow. Any thread, without the GIL. */
bool hold_release(uint64_t here);
/* Whether that file is closed, of the last HOLD_RELEASED_MAX that are. Any thread. */
#define HOLD_RELEASED_MAX 256u
bool hold_is_released(uint64_t here);
/* How many open files are closed. Any thread. */
uint64_t hold_released(void);
/* What a held thread is told to run, with the GIL of its interpreter. here, borrowed: the frame, or
 * the exception, at which it is held. */
struct job {
    void (*run)(struct interpreter *interpreter, PyObject *here, void *arg);
    void *arg;
    uint64_t gil_interval; /* as of gil_take(): how the thread gets the GIL for it */
    bool done;             /* set by who runs it */
};
/* Whose job it is. */
struct job_for {
    enum {
        JOB_BY_TID,
        JOB_BY_THREAD,
        JOB_OF_CRASH
    } who; /* JOB_OF_CRASH: that an exception holds */
    int32_t tid;
    pthread_t thread;
    bool in_frames; /* of JOB_BY_THREAD: its own, so not if an exception holds it, with others */
};
/* Has the held thread run a job, and waits for that. Python's thread, without the GIL. -ESRCH: no
 * such thread is held; -EBUSY: code that was interrupted still runs in it. */
int hold_run(const struct job_for *whose, struct job *job);

/* How many jobs held threads have run: what they did is no event that anybody hears. */
unsigned hold_jobs_run(void);

/* Lets all threads go on: the daemon has gone. Any thread, without the GIL. */
void hold_daemon_gone(void);
/* Lets the threads of one interpreter go on, which begins to end. With or without the GIL. */
void hold_leave(const struct interpreter *interpreter);
/* Lets all threads go on at a detach (agent_life.detaching), and waits, without the GIL, until they
 * have left. False: some don't get the GIL for it, and the library has to stay. */
bool hold_end(void);
void hold_forget(void); /* in a child after fork */
