/* Asking: a request's frames go out one after the other, then its thread waits for the answer on
 * an eventfd of its own, with the writer's Ctrl-C and a deadline beside it. Whoever gives up
 * says CANCEL and waits a moment for the last frame, so that "it never began" is known and not
 * guessed. */
#include "fs/link/session.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>

#define SLICE_NS 20000000u /* at which an interrupt without a descriptor is looked for */
#define FOREVER UINT64_MAX

/* Most is served within this: what isn't may wait for a GIL that somebody has to lend. Where that
 * can't be, it is tried more and more seldom; where nobody sleeps with it just then, which stops
 * nobody, as often. */
#define LEND_FIRST_NS 5000000u
#define LEND_SELDOM_NS 640000000u
#define LEND_AWAKE_NS 20000000u
#define LEND_NS 500000000u /* at a time */
/* Once it was lent it was to be had, and is waited for as long as from anybody. */
#define LENT_NS 10000000000u

/* How long somebody waits. */
struct patience {
    uint64_t until; /* CLOCK_MONOTONIC, nanoseconds; FOREVER */
    const struct interrupt *interrupt;
    uint64_t lend_at, pause; /* when it is tried to have the GIL lent, and how long after that
                                again; 0: it isn't */
    uint64_t last;           /* `until` at most for the time that such tries take in vain */
    uint64_t last_awake;     /* and for that in which nobody slept with it */
};

static struct patience patience_of(uint64_t duration, const struct interrupt *interrupt)
{
    uint64_t now = monotonic_ns();
    return (struct patience){duration < FOREVER - now ? now + duration : FOREVER, interrupt};
}

/* The same, for what Python has to serve. */
static struct patience patience_for_python(uint64_t duration, const struct interrupt *interrupt)
{
    struct patience patience = patience_of(duration, interrupt);

    patience.pause = LEND_FIRST_NS;
    patience.lend_at = monotonic_ns() + patience.pause;
    patience.last = patience.until < FOREVER - LENT_NS ? patience.until + LENT_NS : FOREVER;
    patience.last_awake = monotonic_ns() + LENT_NS;
    return patience;
}

/* Nanoseconds left. -EINTR, -ETIMEDOUT. */
static int patience_left(const struct patience *patience, uint64_t *left)
{
    uint64_t now = monotonic_ns();

    if (interrupted(patience->interrupt))
        return -EINTR;
    if (now >= patience->until)
        return -ETIMEDOUT;
    *left = patience->until - now;
    return 0;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static int begin(struct session *session, uint16_t op, size_t text_size, size_t output_max,
                 struct exchange_request **out)
{
    _cleanup_close_ int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake < 0)
        return -errno;

    _guard_mutex_(&session->lock);
    if (session->ended)
        return session->ended;
    int r = exchange_begin(&session->exchange, op, text_size, output_max, out);
    if (r == 0)
        (*out)->wake = steal_fd(wake);
    return r;
}

/* Gives a request back; one that may still be answered keeps its id until then. */
static void finish(struct session *session, struct exchange_request *request, bool sent)
{
    _guard_mutex_(&session->lock);
    close(request->wake);
    if (sent && !session->ended)
        exchange_abandon(&session->exchange, request);
    else
        exchange_end(&session->exchange, request);
}

/* Takes the right to send. -ETIMEDOUT, -EINTR. */
static int lock_sending(struct session *session, const struct patience *patience)
{
    for (;;) {
        uint64_t left;
        int r = patience_left(patience, &left);
        if (r < 0)
            return r;
        struct timespec until = timespec_of(monotonic_ns() + least(left, SLICE_NS));
        if (pthread_mutex_clocklock(&session->sending, CLOCK_MONOTONIC, &until) == 0)
            return 0;
    }
}

/* One frame to send: a body of two parts. */
struct outgoing {
    uint16_t op;
    uint64_t id;
    const void *body;
    size_t size;
    const char *text;
    size_t text_size;
};

static int send_frame(struct session *session, const struct outgoing *o,
                      const struct patience *patience)
{
    for (;;) {
        uint64_t left;
        int r = patience_left(patience, &left);
        if (r == 0)
            r = wire_send(session->fd, o->op, o->id, o->body, o->size, o->text, o->text_size,
                          least(left, SLICE_NS));
        if (r != -EAGAIN)
            return r;
    }
}

/* Sends a request and its text, in as many frames as that takes, with no other request's between.
 * The agent reads at once what is sent to it, else it is stopped. *sent: it may have the
 * request. */
static int send_request(struct session *session, const struct outgoing *whole,
                        const struct interrupt *interrupt, bool *sent)
{
    const size_t room = PROTO_FRAME_MAX - sizeof(struct proto_header);
    struct patience patience = patience_of(SESSION_ANSWER_NS, interrupt);
    struct outgoing part = *whole;

    int r = lock_sending(session, &patience);
    if (r < 0)
        return r;
    part.text_size = least(whole->text_size, room - whole->size);
    r = send_frame(session, &part, &patience);
    *sent = r == 0;
    patience.interrupt = NULL; /* half a request is worse than none */
    for (size_t at = part.text_size; r == 0 && at < whole->text_size; at += part.text_size) {
        part = (struct outgoing){.op = PROTO_TEXT,
                                 .id = whole->id,
                                 .text = whole->text + at,
                                 .text_size = least(whole->text_size - at, room)};
        r = send_frame(session, &part, &patience);
        if (r < 0) /* it has no end: start anew with a new channel */
            session_end(session, -ESRCH);
    }
    pthread_mutex_unlock(&session->sending);
    return r == -EPIPE ? -ESRCH : r; /* what it said before it went is still to be received */
}

static void extend(struct patience *patience, uint64_t ns, uint64_t last)
{
    if (patience->until < last)
        patience->until += least(ns, last - patience->until);
}

/* Has the GIL lent, if it is time for that. On a busy machine a single try may take as long as one
 * would wait, and whoever has it may be awake, or wait for a processor, whenever one tries: all
 * that was none of the waiting. */
static void try_lending(struct session *session, struct patience *patience)
{
    uint64_t now = monotonic_ns(), before = patience->lend_at - patience->pause;

    if (now < patience->lend_at || now >= patience->until)
        return;
    uint64_t duration = least(patience->until - now, LEND_NS);
    int r = session->lend(session->lend_arg, duration, patience->interrupt);
    uint64_t end = monotonic_ns();
    if (r == 0) {
        atomic_store(&session->lent, true);
        patience->pause = LEND_FIRST_NS;
        if (patience->until < end + LENT_NS)
            patience->until = end + LENT_NS;
    } else if (r == -EINPROGRESS) {
        patience->pause = LEND_AWAKE_NS;
        extend(patience, end - before, patience->last_awake);
    } else {
        extend(patience, end - now, patience->last);
        if (patience->pause < LEND_SELDOM_NS)
            patience->pause *= 2;
    }
    patience->lend_at = monotonic_ns() + patience->pause;
}

/* Waits until the request is finished, or has begun where that is enough. 0; -ETIMEDOUT, -EINTR;
 * -ESRCH, -EPROTO: the session is over. */
static int wait_for(struct session *session, struct exchange_request *request, bool started,
                    struct patience *patience)
{
    for (;;) {
        uint64_t left;
        eventfd_t n;
        bool lend;
        {
            _guard_mutex_(&session->lock);
            if (request->finished || (started && request->started))
                return 0;
            lend = session->lend && patience->pause &&
                   (!request->started || atomic_load(&session->lent));
            if (session->ended)
                return session->ended;
        }
        int r = patience_left(patience, &left);
        if (r < 0)
            return r;

        const struct interrupt *interrupt = patience->interrupt;
        struct pollfd fds[] = {{.fd = request->wake, .events = POLLIN},
                               {.fd = interrupt ? interrupt->fd : -1, .events = POLLIN}};
        if (interrupt && interrupt->fd < 0)
            left = least(left, SLICE_NS);
        if (lend) {
            uint64_t now = monotonic_ns();
            left = least(left, now < patience->lend_at ? patience->lend_at - now : 0);
        }
        struct timespec t = timespec_of(left);
        if (ppoll(fds, ARRAY_SIZE(fds), &t, NULL) < 0 && errno != EINTR)
            return -errno;
        if (eventfd_read(request->wake, &n) < 0 && lend)
            try_lending(session, patience);
    }
}

/* Tells the agent that nobody wants this any more, and waits for its last word. */
static int cancel(struct session *session, struct exchange_request *request, uint64_t duration,
                  const struct interrupt *interrupt)
{
    struct patience patience = patience_for_python(duration, interrupt);

    int r = lock_sending(session, &patience);
    if (r < 0)
        return r;
    struct outgoing frame = {.op = PROTO_CANCEL, .id = request->id};
    r = send_frame(session, &frame, &patience);
    pthread_mutex_unlock(&session->sending);
    if (r < 0)
        return r == -EPIPE ? -ESRCH : r;
    return wait_for(session, request, false, &patience);
}

static void say(struct proto_done *done, const char *words)
{
    snprintf(done->words, sizeof done->words, "%s", words);
}

/* What became of a request whose deadline passed (-ETIMEDOUT) or whose writer interrupted (-EINTR),
 * after its cancellation ended with r. Before it began another one's code may have run. */
static int explain_cancelled(int reason, int r, bool started, bool occupied,
                             struct proto_done *done)
{
    bool never = done->error == ECANCELED || done->error == ETIMEDOUT;

    if (r == -ESRCH || r == -EPROTO)
        return r;
    if (r == 0 && !never && done->error != EINTR)
        return -done->error; /* it came to its own end just then */
    if (r == 0 && reason == -EINTR)
        say(done, never ? "interrupted before it began" : "interrupted");
    else if (r == 0 && done->error == EINTR)
        say(done, "it got the GIL only at the deadline, and was interrupted");
    else if (r == 0 && done->error == ECANCELED)
        say(done, occupied ? "code of an earlier eval still runs, this one waited for it: it "
                             "never began, and never will"
                           : ""); /* who has the GIL is for the caller to say */
    else if (r < 0 && started)
        say(done, "it was told to end, but runs on: a call into C ends only when it returns");
    else if (r < 0)
        say(done, "the agent doesn't answer (is the process stopped?); it was told to drop this");
    return reason;
}

/* Words where the agent said none. */
static void explain(int r, struct proto_done *done)
{
    switch (r) {
    case -ESRCH:
        say(done, "the process or its agent ended meanwhile, or closed the agent's descriptors; if "
                  "it runs, try again");
        break;
    case -EPROTO: say(done, "the agent broke the protocol; the connection was ended"); break;
    case -EBUSY: say(done, "too many requests are in flight in this process"); break;
    case -EINTR: say(done, "interrupted before it began"); break;
    case -EFBIG: say(done, "the text is longer than a megabyte"); break;
    case -ETIMEDOUT: say(done, "the agent takes no requests (is the process stopped?)"); break;
    }
}

/* Waits as both kinds of request that Python has to serve do: until `begun`, then to the end. */
static int await(struct session *session, struct exchange_request *request, uint64_t deadline_ns,
                 bool begun_in_time, const struct interrupt *interrupt, struct proto_done *done)
{
    struct patience patience = patience_for_python(deadline_ns, interrupt);

    int reason = wait_for(session, request, begun_in_time, &patience), r = reason;
    if (r == 0) {
        patience.until = FOREVER;
        reason = r = wait_for(session, request, false, &patience);
    }
    if (reason == -EINTR)
        r = cancel(session, request, SESSION_INTERRUPT_NS, NULL);
    else if (reason == -ETIMEDOUT)
        r = cancel(session, request, SESSION_ANSWER_NS, interrupt);

    bool started, occupied;
    {
        _guard_mutex_(&session->lock);
        *done = request->done;
        occupied = exchange_occupied(&session->exchange, request);
        started = request->started;
        if (!request->finished)
            *done = (struct proto_done){0};
    }
    if (reason == -EINTR || reason == -ETIMEDOUT)
        return explain_cancelled(reason, r, started, occupied, done);
    if (r == 0 && (done->error == ECANCELED || done->error == EINTR))
        return -ESRCH; /* not by us: the agent is being detached */
    return r < 0 ? r : -done->error;
}

static struct text take_output(struct session *session, struct exchange_request *request)
{
    _guard_mutex_(&session->lock);
    return exchange_take_output(&session->exchange, request);
}

int session_eval(struct session *session, const struct session_eval *eval,
                 const struct interrupt *interrupt, struct text *output, struct proto_done *done)
{
    struct proto_eval body = eval->request;
    uint16_t op = eval->op ? eval->op : PROTO_EVAL;
    struct exchange_request *request;
    bool sent = false;

    *done = (struct proto_done){0};
    body.text_size = (uint32_t)eval->size;
    body.output_max = PROTO_OUTPUT_MAX;
    int r = eval->size > PROTO_TEXT_MAX ? -EFBIG : 0;
    if (r == 0)
        r = begin(session, op, eval->size, body.output_max, &request);
    if (r == 0) {
        struct outgoing whole = {op, request->id, &body, sizeof body, eval->text, eval->size};
        r = send_request(session, &whole, interrupt, &sent);
        if (r == 0)
            r = await(session, request, eval->gil_deadline_ns, true, interrupt, done);
        struct text got = take_output(session, request);
        text_add(output, got.data, got.size);
        text_deinit(&got);
        finish(session, request, sent);
    }
    if (r < 0 && !done->words[0] && !done->error)
        explain(r, done);
    return r;
}

int session_order(struct session *session, uint16_t op, const void *body, size_t size,
                  uint64_t gil_deadline_ns, const struct interrupt *interrupt,
                  struct proto_done *done)
{
    struct exchange_request *request;
    bool sent = false;

    *done = (struct proto_done){0};
    int r = begin(session, op, 0, 0, &request);
    if (r == 0) {
        struct outgoing whole = {.op = op, .id = request->id, .body = body, .size = size};
        r = send_request(session, &whole, interrupt, &sent);
        if (r == 0)
            r = await(session, request, gil_deadline_ns, true, interrupt, done);
        finish(session, request, sent);
    }
    if (r < 0 && !done->words[0] && !done->error)
        explain(r, done);
    return r;
}

int session_detach(struct session *session, uint64_t deadline_ns, const struct interrupt *interrupt,
                   struct proto_done *done)
{
    struct exchange_request *request;
    bool sent = false;

    *done = (struct proto_done){0};
    int r = begin(session, PROTO_DETACH, 0, 0, &request);
    if (r == 0) {
        struct outgoing whole = {.op = PROTO_DETACH, .id = request->id};
        r = send_request(session, &whole, interrupt, &sent);
        if (r == 0)
            r = await(session, request, deadline_ns, false, interrupt, done);
        finish(session, request, sent);
    }
    if (r < 0 && !done->words[0] && !done->error)
        explain(r, done);
    return r;
}

void session_crash_seen(struct session *session)
{
    struct patience patience = patience_of(SESSION_ANSWER_NS, NULL);
    const struct outgoing frame = {.op = PROTO_CRASH_SEEN, .id = UINT64_MAX};

    if (lock_sending(session, &patience) < 0)
        return;
    send_frame(session, &frame, &patience);
    pthread_mutex_unlock(&session->sending);
}

int session_status(struct session *session, struct proto_ready *out)
{
    struct patience patience = patience_of(SESSION_ANSWER_NS, NULL);
    struct exchange_request *request;
    bool sent = false;

    int r = begin(session, PROTO_STATUS, 0, 0, &request);
    if (r < 0)
        return r;
    struct outgoing whole = {.op = PROTO_STATUS, .id = request->id};
    r = send_request(session, &whole, NULL, &sent);
    if (r == 0)
        r = wait_for(session, request, false, &patience);
    if (r == 0) {
        _guard_mutex_(&session->lock);
        r = -request->done.error;
        if (r == 0)
            *out = request->ready;
    }
    finish(session, request, sent);
    return r;
}
