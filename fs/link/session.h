/* The conversation with the agent of one process: requests out, answers in.
 *
 * Any number of threads may ask at once; one thread of the session receives and hands each answer to
 * who waits for it. The agent is not trusted: what it says is bounded and checked, a stall ends at a
 * deadline, and a broken rule ends the session. */
#pragma once

#include "agent/proto.h"
#include "fs/interrupt.h"
#include "fs/text.h"

#include <stdbool.h>
#include <sys/types.h>

struct session;

/* Takes over one end of a channel, also on failure, and says hello. -ETIMEDOUT: the agent doesn't
 * answer; -EBUSY: another daemon was faster; -EPROTO: it is no agent, or of another version; -EPIPE:
 * it is gone; -EAGAIN, -ENOMEM: no thread could be made. The caller owns one reference. */
int session_open(int fd, struct session **out);
struct session *session_ref(struct session *session);
/* With the last reference the channel is closed, and the agent waits for the next daemon. */
void session_unref(struct session *session);

/* Whether the agent is still there. */
bool session_alive(const struct session *session);

/* How the agent is. Asks it; -ETIMEDOUT, -EPIPE. */
int session_status(struct session *session, struct proto_ready *out);

/* One piece of Python to run. */
struct session_eval {
    struct proto_eval request;  /* text_size and output_max are filled in */
    const char *text;
    size_t size;                /* at most PROTO_TEXT_MAX, else -EFBIG */
    uint64_t gil_deadline_ns;   /* until its code has begun to run */
};

/* Runs it and waits for its end, or until interrupted. Appends its output to `output`. 0 or the error in
 * done; -ETIMEDOUT: it could not begin in time, and never will; -EINTR: interrupted, it has been made
 * to end or told to; -ESRCH: the process or its agent ended meanwhile. done->words says more. */
int session_eval(struct session *session, const struct session_eval *eval,
                 const struct interrupt *interrupt, struct text *output, struct proto_done *done);

/* Makes the agent give up everything and end its threads. done->flags says whether its library can be
 * unloaded. -ETIMEDOUT: it could not get the GIL for that; it stays attached. */
int session_detach(struct session *session, uint64_t deadline_ns, struct proto_done *done);
