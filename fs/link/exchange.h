/* The requests that are in flight with an agent, and what each of its frames does to them.
 *
 * No socket, no thread, no clock: the session calls this under its lock, tests and fuzzers call it
 * directly. The agent is hostile until checked: whatever it says, what is kept of it is bounded,
 * and a frame that breaks a rule of agent/wire/proto.h is -EPROTO, the end of the session. */
#pragma once

#include "agent/wire/wire.h"
#include "fs/base/text.h"

#include <stdbool.h>

/* Output that all requests of a session may hold together; more is dropped, and that is said. */
#define EXCHANGE_HELD_MAX (64u << 20)
/* An agent drops what is beyond output_max itself; one that sends this much more is none of
 * ours. */
#define EXCHANGE_EXCESS_MAX (1u << 20)
/* Frames for a request that was never made, before the session ends. */
#define EXCHANGE_UNKNOWN_MAX 64
/* Frames without a request (RINGS, WATCHES, CRASHED) that an agent may send by itself, and beyond
 * that for each request of ours. */
#define EXCHANGE_NOTICES_MAX 64
#define EXCHANGE_NOTICES_EACH 4
/* HAPPENED, which an agent says at most once in PROTO_HAPPENED_NS, between two calls of
 * exchange_new_second(). */
#define EXCHANGE_HAPPENED_MAX 4000

/* One request, from begin to the end or, if nobody waits for it any more, to its last frame. */
struct exchange_request {
    struct exchange_request *next;
    uint64_t id;
    uint16_t op;       /* enum proto_op: PROTO_EVAL, ... */
    int wake;          /* the session's: how its waiting thread is told; -1 */
    bool started;      /* its code runs, or did */
    bool finished;     /* its last frame came */
    bool abandoned;    /* nobody waits */
    size_t text_size;  /* bytes that it may have consumed */
    size_t output_max; /* bytes that are kept */
    size_t sent;       /* bytes of output that came, kept or not */
    bool cut;          /* some were dropped here */
    struct text output;
    struct proto_ready ready; /* of STATUS, if done.error is 0 */
    struct proto_done done;   /* of the others */
};

struct exchange {
    struct exchange_request *requests;
    size_t n;
    uint64_t last_id;  /* ids count up and are never used again */
    size_t held;       /* bytes of output, of all requests */
    unsigned unknown;  /* frames for an id that was never given */
    uint64_t begun;    /* requests, ever */
    uint64_t notices;  /* frames that came without a request, but for HAPPENED ... */
    unsigned happened; /* ... of which there were so many in this second */
};

/* Makes a request with an id of its own. -EBUSY: PROTO_REQUESTS_MAX are in flight; -ENOMEM. Belongs
 * to the exchange: the caller gives it back by exchange_end() or exchange_abandon(). */
int exchange_begin(struct exchange *exchange, uint16_t op, size_t text_size, size_t output_max,
                   struct exchange_request **out);
/* Forgets a request that is finished, was never sent, or whose session has ended. */
void exchange_end(struct exchange *exchange, struct exchange_request *request);
/* Whether the code of another request runs now, as far as one knows: the agent
 * runs one at a time. */
bool exchange_occupied(const struct exchange *exchange, const struct exchange_request *request);
/* Moves out the output that came so far. The caller owns it (text_deinit). */
struct text exchange_take_output(struct exchange *exchange, struct exchange_request *request);
/* Nobody waits for it any more: it keeps its id until its last frame, and its output is dropped. */
void exchange_abandon(struct exchange *exchange, struct exchange_request *request);
/* Forgets them all, waited for or not. */
void exchange_deinit(struct exchange *exchange);

/* Another second has begun. */
void exchange_new_second(struct exchange *exchange);
/* Applies one well-formed frame. *changed is the request whose waiting thread has something to
 * see, or NULL. -EPROTO: it breaks the protocol, *changed is NULL. */
int exchange_frame(struct exchange *exchange, const struct wire_frame *frame,
                   struct exchange_request **changed);

/* Takes over what the agent says of itself. -EPROTO: impossible, or of another version. */
int exchange_ready(const struct wire_frame *frame, struct proto_ready *out);
