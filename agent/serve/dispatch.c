#include "agent/serve/dispatch.h"

#include "agent/base/cleanup.h"
#include "agent/base/life.h"
#include "agent/base/lock.h"
#include "agent/breakpoint/set.h"
#include "agent/cpython/gil.h"
#include "agent/crash/crash.h"
#include "agent/crash/fatal.h"
#include "agent/eval/interrupt.h"
#include "agent/eval/requests.h"
#include "agent/record/recorder.h"
#include "agent/sample/sample.h"
#include "agent/serve/ending.h"
#include "agent/serve/python_thread.h"
#include "agent/serve/serve.h"
#include "agent/stop/hold.h"
#include "agent/wire/channel.h"
#include "agent/wire/record.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static uint64_t detach_id, detach_generation; /* of the last DETACH, and its channel's */

static int send(uint16_t op, uint64_t id, const void *body, size_t size)
{
    return channel_send(probe_agent_record.generation, op, id, body, size, NULL, 0,
                        CHANNEL_SEND_NS);
}

static int send_done(uint64_t id, int error, uint32_t flags, const char *words)
{
    struct proto_done done = {.error = error, .flags = flags};
    snprintf(done.words, sizeof done.words, "%s", words);
    return send(PROTO_DONE, id, &done, sizeof done);
}

static int send_ready(uint64_t id)
{
    struct proto_ready ready;
    serve_describe(&ready);
    return send(PROTO_READY, id, &ready, sizeof ready);
}

/* A second daemon that took the same end says HELLO too: it learns from the nonce, which stays the
 * first one's, that it came too late. One that comes while an order to DETACH is carried out, of a
 * daemon that is gone, is hung up on: soon there is no agent. */
static int hello(const struct wire_frame *frame)
{
    struct proto_hello said;

    {
        _guard_agent_;
        if (agent_life.detaching)
            return -EPIPE;
    }
    if (!channel_is_greeted()) {
        memcpy(&said, frame->body, sizeof said);
        _guard_agent_;
        channel_greet(said.nonce);
    }
    int r = send_ready(frame->header.id);
    if (r == 0 && probe_agent_record.origin == ORIGIN_INJECTED)
        python_thread_welcome();
    return r;
}

/* Answers a request that can't be taken. */
static int refuse(uint64_t id, int r)
{
    switch (r) {
    case -ESHUTDOWN: return send_done(id, ESHUTDOWN, 0, "the interpreter is ending");
    case -EBUSY:
        return send_done(id, EBUSY, 0,
                         agent_life.detaching ? "the agent is being detached"
                                              : "too many requests wait");
    default: return send_done(id, -r, 0, "no memory for it, or for a thread");
    }
}

/* After a request came in. */
static int start_python(uint64_t id)
{
    uint16_t op;
    int r = python_thread_need();
    if (r < 0 && requests_cancel(id, &op) == CANCELLED_BEFORE)
        return refuse(id, -ENOMEM);
    return 0;
}

static int eval(const struct wire_frame *frame)
{
    bool queued;
    int r = frame->header.op == PROTO_TEXT ? requests_text(frame, &queued)
                                           : requests_eval(frame, &queued);
    if (r == -EPROTO)
        return r;
    if (r < 0)
        return refuse(frame->header.id, r);
    return queued ? start_python(frame->header.id) : 0;
}

/* What needs the GIL waits its turn; that nothing is written any more doesn't. */
static int record(const struct wire_frame *frame)
{
    char words[PROTO_WORDS_MAX] = "";
    struct proto_record wanted;
    uint64_t id = frame->header.id;

    memcpy(&wanted, frame->body, sizeof wanted);
    int r = recorder_check(&wanted, words);
    bool with_python = r == 0 && recorders[wanted.table]->python;
    if (r == 0 && (!with_python || wanted.action == RECORD_OFF))
        r = recorder_prepare(&wanted, words);
    if (r == 0 && !with_python)
        r = recorder_switch(NULL, &wanted, words);
    if (r < 0 || !with_python)
        return send_done(id, -r, 0, words);
    /* to undo it everywhere one has to come from the main interpreter */
    r = requests_order(PROTO_RECORD, id, &wanted, sizeof wanted,
                       wanted.action == RECORD_OFF ? 0 : wanted.interp, wanted.gil_interval);
    if (r == -EPROTO)
        return r;
    return r < 0 ? refuse(id, r) : start_python(id);
}

/* What is carried out by Python's thread, and where its body says in which
 * interpreter, and how the GIL is got. */
static const struct {
    uint16_t op, interp, gil_interval; /* 0: it doesn't say */
} orders[] = {
    {PROTO_ON_CRASH, offsetof(struct proto_on_crash, interp),
     offsetof(struct proto_on_crash, gil_interval)},
    {PROTO_ARMED, 0, 0},
    {PROTO_ALLOCATIONS, offsetof(struct proto_allocations, interp),
     offsetof(struct proto_allocations, gil_interval)},
    {PROTO_SAMPLES, offsetof(struct proto_samples, interp),
     offsetof(struct proto_samples, gil_interval)},
};

/* -EPROTO: it is none. */
static int order(const struct wire_frame *frame)
{
    uint64_t id = frame->header.id, gil_interval = 0;
    int64_t interp = 0;
    size_t i = 0;

    while (i < ARRAY_SIZE(orders) && orders[i].op != frame->header.op)
        i++;
    if (i == ARRAY_SIZE(orders))
        return -EPROTO;
    if (orders[i].interp) {
        memcpy(&interp, frame->body + orders[i].interp, sizeof interp);
        memcpy(&gil_interval, frame->body + orders[i].gil_interval, sizeof gil_interval);
    }
    int r = requests_order(frame->header.op, id, frame->body, wire_body_size(frame), interp,
                           gil_interval);
    if (r == -EPROTO)
        return r;
    return r < 0 ? refuse(id, r) : start_python(id);
}

/* Going on needs nothing of Python; a step is run by the thread itself, and a pause
 * is one of all interpreters. */
static int thread(const struct wire_frame *frame)
{
    char words[PROTO_WORDS_MAX] = "";
    struct proto_thread wanted;
    uint64_t id = frame->header.id;

    memcpy(&wanted, frame->body, sizeof wanted);
    if (wanted.verb == THREAD_CONTINUE) {
        int r = hold_continue(wanted.tid, words);
        return send_done(id, -r, 0, words);
    }
    int r = requests_order(PROTO_THREAD, id, &wanted, sizeof wanted, 0, wanted.gil_interval);
    if (r == -EPROTO)
        return r;
    return r < 0 ? refuse(id, r) : start_python(id);
}

/* To end them needs nothing of Python. */
static int samples(const struct wire_frame *frame)
{
    struct proto_samples wanted;

    memcpy(&wanted, frame->body, sizeof wanted);
    if (wanted.on)
        return order(frame);
    sample_end();
    return send_done(frame->header.id, 0, 0, "");
}

void dispatch_tidy(void)
{
    if (requests_untidy())
        (void)python_thread_need(); /* without it, whoever comes next tidies up */
}

/* Threads go on at once; the rest is Python's. */
static int release(const struct wire_frame *frame)
{
    struct proto_release wanted;

    memcpy(&wanted, frame->body, sizeof wanted);
    if (!wanted.here)
        return -EPROTO;
    /* first: from then on who sets something for it takes that back (hold_is_released()) */
    const bool untidy[] = {hold_release(wanted.here), breakpoints_release(wanted.here),
                           crash_release(wanted.here)};
    if (untidy[0] || untidy[1] || untidy[2])
        requests_tidy();
    dispatch_tidy();
    return 0;
}

void dispatch_interrupt(uint64_t id)
{
    if (id)
        interrupt_later(id);
}

static int cancel(uint64_t id)
{
    uint16_t op;

    switch (requests_cancel(id, &op)) {
    case CANCELLED_BEFORE:
        gil_restore_interval(); /* should it be the one that waits */
        if (op == PROTO_DETACH)
            return send_done(id, ETIMEDOUT, 0, "did not get the GIL in time; still attached");
        return send_done(id, ECANCELED, 0, "cancelled before it began");
    case CANCELLED_RUNNING: dispatch_interrupt(id); return 0;
    default: return 0;
    }
}

static int detach(uint64_t id)
{
    if (python_thread_stuck())
        return send_done(id, EBUSY, 0, "code of an interrupted eval has not returned from a call");
    python_thread_give_up_welcome();
    int r = requests_detach(id);
    if (r == -EPROTO)
        return r;
    if (r < 0)
        return refuse(id, r);
    detach_id = id;
    detach_generation = probe_agent_record.generation;
    for (uint64_t dropped; (dropped = requests_drop_one());)
        if (send_done(dropped, ECANCELED, 0, "the agent is being detached") < 0)
            return -EPIPE;
    dispatch_interrupt(requests_running());
    return start_python(id);
}

int dispatch(const struct wire_frame *frame)
{
    uint64_t id = frame->header.id;

    if (!channel_is_greeted() && frame->header.op != PROTO_HELLO)
        return -EPROTO;
    switch (frame->header.op) {
    case PROTO_HELLO: return hello(frame);
    case PROTO_EVAL:
    case PROTO_BREAKPOINTS:
    case PROTO_TEXT: return eval(frame);
    case PROTO_RECORD: return record(frame);
    case PROTO_THREAD: return thread(frame);
    case PROTO_SAMPLES: return samples(frame);
    case PROTO_CRASH_SEEN: fatal_seen(); return 0;
    case PROTO_RELEASE: return release(frame);
    case PROTO_CANCEL: return cancel(id);
    case PROTO_STATUS: return send_ready(id);
    case PROTO_DETACH: return detach(id);
    default: return order(frame);
    }
}

bool dispatch_detached(void)
{
    {
        _guard_agent_;
        if (!agent_life.detached)
            return false;
    }
    python_thread_join();
    interrupt_join();
    recorder_end(ending_nobody_writes());
    if (detach_generation == probe_agent_record.generation) /* else its daemon has gone */
        send_done(detach_id, 0, ending_is_unloadable() ? DONE_UNLOADABLE : 0, "");
    return true;
}
