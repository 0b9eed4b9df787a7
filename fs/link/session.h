/* The conversation with the agent of one process: requests out, answers in.
 *
 * Any number of threads may ask at once; one thread of the session receives and hands each
 * answer to who waits for it. The agent is not trusted: what it says is bounded and checked, a
 * stall ends at a deadline, and a broken rule ends the session. */
#pragma once

#include "agent/wire/proto.h"
#include "fs/base/interrupt.h"
#include "fs/base/text.h"
#include "fs/link/exchange.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

/* An agent that runs answers within this, whatever Python does, and however few processors there
 * are for it: its channel's thread never waits. */
#define SESSION_ANSWER_NS 3000000000u
/* How long a writer's Ctrl-C waits for the end of what it interrupted. */
#define SESSION_INTERRUPT_NS 1000000000u

struct session;

/* Takes over one end of a channel, also on failure, and says hello. pidfd: of the process, so
 * that its end is seen even while a child of it holds the agent's end; stays the caller's, -1:
 * none. -ETIMEDOUT: the agent doesn't answer; -EBUSY: another daemon was faster; -EPROTO: it is
 * no agent, or of another version; -EPIPE: it is gone; -EINTR: interrupted; -EAGAIN, -EMFILE,
 * -ENOMEM: no thread could be made. The caller owns one reference. */
int session_open(int fd, int pidfd, const struct interrupt *interrupt, struct session **out);
struct session *session_ref(struct session *session);
/* Gives a reference up; with the last one the channel is closed, and the agent waits for the next
 * daemon. NULL is fine. */
void session_unref(struct session *session);

/* Whether the agent is still there. */
bool session_alive(struct session *session);

/* What the agent last said of itself. */
void session_last_ready(struct session *session, struct proto_ready *out);
/* What the agent says without being asked: op is PROTO_RINGS, PROTO_WATCHES,
 * PROTO_HAPPENED, or PROTO_CRASHED, whose body is `crashed`. */
typedef void session_notice(void *arg, uint64_t key, uint16_t op,
                            const struct proto_crashed *crashed);
/* Has `notice` called, with arg and key, whenever the agent says such a thing, and once now, as if
 * it had said RINGS; NULL: not any more, once this returns. It is called on a thread of the
 * session, without its locks: it may take its time, but not wait for an answer of the agent, nor
 * give up the session's last reference. The agent may not say so: where its channel is full. */
void session_on_notice(struct session *session, session_notice *notice, void *arg, uint64_t key);
/* Tries to have whoever keeps the GIL lend it to the agent, for at most duration_ns, and returns
 * once it has the GIL again. 0: it was lent; -EINPROGRESS: nobody sleeps with it, just then, so
 * that it may be given up at any moment; else it can't be done now. */
typedef int session_lend(void *arg, uint64_t duration_ns, const struct interrupt *interrupt);
/* What is called, with arg, while a request that Python has to serve isn't served. To be set before
 * anything is asked; arg must be valid whenever something is. */
void session_on_wait(struct session *session, session_lend *lend, void *arg);
/* Says that what CRASHED spoke of has been taken down. There is no answer. */
void session_crash_seen(struct session *session);

/* Says that the open file of that number is closed (PROTO_RELEASE). Doesn't wait: it is said as
 * soon as there is room, or the session ends, by which the agent takes everything back, too. */
void session_release(struct session *session, uint64_t number);

/* How the agent is now. Asks it, for at most SESSION_ANSWER_NS; -ETIMEDOUT, -ESRCH, -EPROTO,
 * -EBUSY, -EMFILE, -ENOMEM as session_eval(). */
int session_status(struct session *session, struct proto_ready *out);

/* One piece of Python to run. */
struct session_eval {
    uint16_t op;               /* PROTO_EVAL or PROTO_BREAKPOINTS; 0: PROTO_EVAL */
    struct proto_eval request; /* text_size and output_max are filled in */
    const char *text;
    size_t size;              /* at most PROTO_TEXT_MAX, else -EFBIG */
    uint64_t gil_deadline_ns; /* from now until its code has begun to run */
};

/* Runs it and waits for its end, or until interrupted. Appends its output to `output`, at most
 * PROTO_OUTPUT_MAX bytes, also on failure. 0 or the error in done;
 * -ETIMEDOUT: it did not get the GIL in time and never will run (done->words is empty), or had just
 * begun and was made to end, or the agent doesn't answer; -EINTR: interrupted, it has been made to
 * end or told to; -ESRCH: the process or its agent ended meanwhile; -EPROTO: the agent broke the
 * protocol, the session has ended; -EBUSY: too many requests are in flight; -EMFILE, -ENOMEM.
 * done->words says more; else done is zero where the agent didn't answer. */
int session_eval(struct session *session, const struct session_eval *eval,
                 const struct interrupt *interrupt, struct text *output, struct proto_done *done);

/* Gives an order that has a body and is answered by DONE: PROTO_RECORD, PROTO_THREAD,
 * PROTO_ON_CRASH, PROTO_ARMED. Errors as above, or the one in done, as agent/wire/proto.h says of
 * the order; done->words may say more on success, too. */
int session_order(struct session *session, uint16_t op, const void *body, size_t size,
                  uint64_t gil_deadline_ns, const struct interrupt *interrupt,
                  struct proto_done *done);

/* Makes the agent give up everything and end its threads. done->flags says whether its library
 * can be unloaded. -ETIMEDOUT: it could not get the GIL for that in deadline_ns; it stays
 * attached; -EINTR: the same, at an interrupt. Otherwise as session_eval(). */
int session_detach(struct session *session, uint64_t deadline_ns, const struct interrupt *interrupt,
                   struct proto_done *done);

/* ---- what session.c and session_ask.c share ---- */

struct session {
    atomic_uint refs;
    int fd;    /* our end of the channel; the target may share its description */
    int pidfd; /* -1: none */
    int stop;  /* an eventfd that ends the receiving thread */
    int owes;  /* an eventfd that has it look at `released` */
    pthread_t receiver;
    pthread_mutex_t sending; /* held while one request's frames go out; taken before lock */

    session_lend *lend; /* NULL: there is none */
    void *lend_arg;
    atomic_bool lent; /* it was, once: what runs may need it again */

    pthread_mutex_t listening; /* held while the listener is called; taken before lock */
    session_notice *notice;    /* the listener; NULL: none */
    void *notice_arg;
    uint64_t notice_key;

    pthread_mutex_t lock;     /* guards what follows */
    int ended;                /* 0, or why: -ESRCH, -EPROTO */
    struct proto_ready ready; /* the last one */
    struct exchange exchange;
    uint64_t *released; /* numbers of files that are closed, which the agent isn't told yet */
    size_t nreleased, released_alloc;
};

/* The session is over because of `error`: who waits is told. The first reason stays. */
void session_end(struct session *session, int error);
