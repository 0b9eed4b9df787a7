/* What the daemon asked and has no answer yet.
 *
 * The channel's thread puts requests in, Python's thread takes them out in order. Whether a request
 * begins or is cancelled is decided under the agent's lock, so a request that was answered
 * "cancelled" never begins, however long its thread had to wait for the GIL.
 *
 * Nothing here uses malloc: a program that hangs inside it still answers. */
#pragma once

#include "agent/wire/proto.h"
#include "agent/wire/wire.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of all the texts that wait; beyond it a request is answered EBUSY. */
#define REQUESTS_TEXT_MAX (16u << 20)

enum request_state {
    REQUEST_FREE,
    REQUEST_ARRIVING, /* not all of its text is there */
    REQUEST_QUEUED,
    REQUEST_TAKEN,     /* waits for the GIL */
    REQUEST_RUNNING,   /* may be interrupted */
    REQUEST_FINISHING, /* its code has ended */
};

/* The op of what nobody asked for: what was released (PROTO_RELEASE) is to be put away. */
#define REQUEST_TIDY 0

struct request {
    enum request_state state;
    /* PROTO_EVAL, PROTO_BREAKPOINTS, PROTO_RECORD, PROTO_THREAD, PROTO_ON_CRASH,
     * PROTO_ARMED, PROTO_ALLOCATIONS, PROTO_SAMPLES or PROTO_DETACH; REQUEST_TIDY */
    uint16_t op;
    bool answered;           /* or nobody waits for it: it must not begin any more */
    bool interrupted;        /* cancelled while it ran ... */
    bool raised;             /* ... and seen to ... */
    unsigned striking;       /* so many are at it, without a GIL: it waits for them */
    uint64_t interrupted_ns; /* ... since then: CLOCK_MONOTONIC */
    uint64_t id;
    uint64_t generation;    /* of the channel that it came by */
    uint64_t since_ns;      /* when it was complete */
    pthread_t runner;       /* the thread that runs it, once it has begun */
    struct proto_eval eval; /* of an order: where it runs */
    union {
        struct proto_record record;     /* of RECORD */
        struct proto_thread thread;     /* of THREAD */
        struct proto_on_crash on_crash; /* of ON_CRASH */
        struct proto_armed armed;       /* of ARMED */
        struct proto_allocations allocations;
        struct proto_samples samples;
    };
    char *text;  /* of EVAL and BREAKPOINTS: eval.text_size bytes, mapped; NULL if that is 0 */
    size_t have; /* bytes of it that came */
    struct request *next; /* in the queue */
};

enum cancelled {
    CANCELLED_UNKNOWN, /* there is no such request, or it is just ending: nothing to do */
    CANCELLED_BEFORE,  /* it never begins: to be answered by who cancelled */
    CANCELLED_RUNNING, /* it is to be interrupted, and answers itself */
};

/* Takes in an EVAL or a BREAKPOINTS, or a PROTO_TEXT. *queued: a request is complete and
 * waits for Python's thread. -EPROTO: it breaks the protocol; -EBUSY: too many, -ENOMEM,
 * -ESHUTDOWN: it is to be answered so. */
int requests_eval(const struct wire_frame *frame, bool *queued);
int requests_text(const struct wire_frame *frame, bool *queued);
/* Takes in an order, RECORD, THREAD, ON_CRASH, ARMED, ALLOCATIONS or SAMPLES, with its body, that
 * is to be run in that interpreter. -EPROTO, -EBUSY, -ESHUTDOWN, as above. */
int requests_order(uint16_t op, uint64_t id, const void *body, size_t size, int64_t interp,
                   uint64_t gil_interval);
/* Takes in a DETACH. -EBUSY: one is under way already, or there are too many requests. */
int requests_detach(uint64_t id);
/* Has Python's thread tidy up, once, however often it is said before that. */
void requests_tidy(void);
/* Whether that is still to be done. */
bool requests_untidy(void);
/* Whether anything is left to be done: it waits for Python's thread, or that is at it. */
bool requests_undone(void);
/* Whether the daemon that asked has gone since, or was hung up on. */
bool requests_forsaken(const struct request *request);

/* *op: what it was, unless unknown. */
enum cancelled requests_cancel(uint64_t id, uint16_t *op);
/* Drops one, but for a DETACH, that has not begun, to be answered by the caller;
 * its id, or 0: there is none. */
uint64_t requests_drop_one(void);
/* The daemon has gone: nothing that has not begun begins any more. */
void requests_abandon(void);
/* The request whose code runs, or has just finished; NULL: none. With the lock. */
struct request *requests_now(void);
/* The request of that id, if its code runs, also in a thread that was left behind; else NULL. With
 * the lock. */
struct request *requests_now_of(uint64_t id);
/* A request whose code runs and that is to be interrupted, which is `raised` from now on; NULL:
 * none. With the lock. */
struct request *requests_now_to_raise(void);
/* Another thread is to take requests: who runs that one is left alone with it. With the lock. */
void requests_leave_behind(void);
/* Bytes of all the texts that wait. With the lock. */
size_t requests_text_bytes(void);
/* Notes that a running request is told to end. With the lock. */
void requests_interrupt(struct request *request);
/* The id of the one that runs, unless it is a DETACH; 0: none. */
uint64_t requests_running(void);
/* For how many nanoseconds the running request has been told to end; 0: it hasn't, or there is
 * none. With the lock. */
uint64_t requests_overdue(void);

/* Waits, at most for so many nanoseconds, until there is something that requests_take() needn't
 * wait for; false: there is nothing. For Python's thread. */
bool requests_wait(uint64_t ns);
/* Waits for the next request, for Python's thread. NULL: the interpreter ends and Python has to be
 * left (only with has_state), or the thread is to end (agent_life.detached). */
struct request *requests_take(bool has_state);
/* Decides that a taken request begins, in this thread. False: it was cancelled meanwhile. */
bool requests_begin(struct request *request);
/* A request's code has ended and must not be interrupted any more. Whether it was. */
bool requests_finish(struct request *request);
/* Waits until nobody is about to interrupt one that has finished, where no GIL keeps them out.
 * Without being in Python: whoever is at it may have need of all threads. */
void requests_settle(const struct request *request);
/* Whether a taken request that can't begin is still to be answered, which nobody else does from now
 * on. */
bool requests_claim(struct request *request);
/* Frees a request that was taken, or has finished. */
void requests_free(struct request *request);

/* Forgets all of them: in a child after fork. */
void requests_forget(void);
