/* The frames of a hostile daemon, inside a target: against the agent's dispatch and its table of
 * requests, without Python. What Python's thread does comes from the input, too. Each request is
 * answered exactly once, and nothing that was answered "cancelled" begins. */
#include "agent/base/clock.h"
#include "agent/base/life.h"
#include "agent/cpython/gil.h"
#include "agent/breakpoint/set.h"
#include "agent/crash/crash.h"
#include "agent/crash/fatal.h"
#include "agent/eval/interrupt.h"
#include "agent/eval/requests.c" /* whose table is looked at */
#include "agent/record/recorder.h"
#include "agent/sample/sample.h"
#include "agent/serve/dispatch.h"
#include "agent/serve/ending.h"
#include "agent/serve/python_thread.h"
#include "agent/serve/serve.h"
#include "agent/stop/hold.h"
#include "agent/wire/channel.h"
#include "agent/wire/record.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define IDS 300 /* more than requests may be in flight */

struct probe_agent_record probe_agent_record = {.generation = 1};

static struct wire_frame frame;
static int unanswered[IDS];   /* requests of that id that wait for their DONE */
static bool cancelled[IDS];   /* the last one was answered so */
static struct request *taken; /* what Python's thread has */
static bool begun, greeted;

/* ---- the parts of the agent that need a process around them ---- */

static void check_done(uint64_t id, const struct proto_done *done)
{
    if (id >= IDS || unanswered[id]-- <= 0)
        abort(); /* twice, or to nobody */
    cancelled[id] = done->error == ECANCELED || done->error == ETIMEDOUT;
    if (memchr(done->words, 0, sizeof done->words) == NULL)
        abort();
}

int channel_send(uint64_t generation, uint16_t op, uint64_t id, const void *body, size_t size,
                 const void *more, size_t more_size, uint64_t deadline_ns)
{
    struct proto_header header = {.size = (uint32_t)(sizeof header + size + more_size),
                                  .op = op,
                                  .id = id};

    if (wire_check(&header, header.size) < 0 || op < PROTO_READY)
        abort();
    if (op == PROTO_DONE)
        check_done(id, body);
    return 0;
}

bool channel_is_greeted(void) { return greeted; }
void channel_greet(uint64_t nonce) { greeted = true; }
void serve_describe(struct proto_ready *out) { *out = (struct proto_ready){.channel_tid = 1}; }
void gil_restore_interval(void) {}
int interrupt_later(uint64_t id)
{
    if (!taken || !begun || taken->id != id)
        abort(); /* it would hit another one, or none */
    return 0;
}
void interrupt_join(void) {}
int python_thread_need(void) { return 0; }
void python_thread_join(void) {}
bool python_thread_stuck(void) { return false; }
bool ending_is_unloadable(void) { return false; }
bool ending_nobody_writes(void) { return false; }
void python_thread_welcome(void) {}
void python_thread_give_up_welcome(void) {}
void recorder_end(bool nobody_writes) {}
void sample_end(void) {}
void fatal_seen(void) {}
int hold_continue(int32_t tid, char words[PROTO_WORDS_MAX]) { return tid ? -ESRCH : 0; }
bool hold_release(uint64_t here) { return here % 2; }
bool crash_release(uint64_t here) { return false; }
bool breakpoints_release(uint64_t here)
{
    if (!here)
        abort(); /* which means all */
    return false;
}

/* The first table's needs Python. */
static const struct recorder with_python = {.python = true}, without;
const struct recorder *const recorders[RECORDED_TABLES] = {[0] = &with_python,
                                                           [1 ... RECORDED_TABLES - 1] = &without};

int recorder_check(const struct proto_record *record, char words[PROTO_WORDS_MAX])
{
    return record->table < RECORDED_TABLES ? 0 : -EOPNOTSUPP;
}

int recorder_prepare(const struct proto_record *record, char words[PROTO_WORDS_MAX])
{
    return record->size % 2 ? -ENOMEM : 0;
}

int recorder_switch(struct interpreter *interpreter, const struct proto_record *record,
                    char words[PROTO_WORDS_MAX])
{
    if (recorders[record->table]->python)
        abort(); /* not on this thread */
    return 0;
}

/* ---- Python's thread, step by step ---- */

static void answer(struct request *request)
{
    struct proto_done done = {0};
    channel_send(request->generation, PROTO_DONE, request->id, &done, sizeof done, NULL, 0, 0);
}

static void begin_taken(void)
{
    uint64_t id = taken->id;

    if (requests_begin(taken)) {
        if (cancelled[id] && unanswered[id] == 0 &&
            taken->generation == probe_agent_record.generation)
            abort();
        begun = true;
        return;
    }
    if (requests_claim(taken))
        abort(); /* only what was cancelled does not begin */
    requests_free(taken);
    taken = NULL;
}

static void end_taken(void)
{
    bool detach = taken->op == PROTO_DETACH;

    if (!detach) {
        requests_finish(taken);
        if (taken->generation == probe_agent_record.generation)
            answer(taken);
    }
    requests_free(taken);
    taken = NULL;
    begun = false;
    if (detach)
        agent_life.detached = true;
}

static void step_python(void)
{
    if (agent_life.detached)
        return;
    if (!taken) {
        if (requests.first)
            taken = requests_take(false);
        if (taken && taken->op == REQUEST_TIDY) {
            requests_free(taken);
            taken = NULL;
        }
    } else if (!begun) {
        begin_taken();
    } else {
        end_taken();
    }
}

/* ---- the channel ---- */

static void renew_channel(void)
{
    requests_abandon();
    dispatch_interrupt(requests_running());
    memset(unanswered, 0, sizeof unanswered);
    memset(cancelled, 0, sizeof cancelled);
    probe_agent_record.generation++;
    greeted = false;
}

static void check(void)
{
    size_t bytes = 0, queued = 0, n = requests.tidying.state == REQUEST_QUEUED;

    for (size_t i = 0; i < PROTO_REQUESTS_MAX; i++) {
        const struct request *request = &requests.slots[i];
        if (request->state == REQUEST_FREE)
            continue;
        n += request->state == REQUEST_QUEUED;
        bytes += request->text ? request->eval.text_size : 0;
        if (request->have > request->eval.text_size || request->eval.text_size > PROTO_TEXT_MAX)
            abort();
    }
    for (const struct request *r = requests.first; r; r = r->next)
        if (r->state != REQUEST_QUEUED || ++queued > PROTO_REQUESTS_MAX + 1)
            abort();
    if (queued != n || bytes != requests.text_bytes || bytes > REQUESTS_TEXT_MAX)
        abort();
}

static size_t order_size(uint16_t op)
{
    switch (op) {
    case PROTO_RECORD: return sizeof(struct proto_record);
    case PROTO_THREAD: return sizeof(struct proto_thread);
    case PROTO_ON_CRASH: return sizeof(struct proto_on_crash);
    case PROTO_ALLOCATIONS: return sizeof(struct proto_allocations);
    case PROTO_SAMPLES: return sizeof(struct proto_samples);
    case PROTO_RELEASE: return sizeof(struct proto_release);
    default: return sizeof(struct proto_armed);
    }
}

/* A well-formed frame of the input: op, id, size of the text, bytes. Returns the bytes used. */
static size_t make_frame(const uint8_t *data, size_t size)
{
    static const uint16_t ops[] = {PROTO_EVAL,        PROTO_TEXT,     PROTO_CANCEL,
                                   PROTO_RECORD,      PROTO_STATUS,   PROTO_DETACH,
                                   PROTO_HELLO,       PROTO_OUTPUT,   PROTO_BREAKPOINTS,
                                   PROTO_THREAD,      PROTO_ON_CRASH, PROTO_ARMED,
                                   PROTO_CRASH_SEEN,  PROTO_EVAL,     PROTO_TEXT,
                                   PROTO_ALLOCATIONS, PROTO_SAMPLES,  PROTO_RELEASE};
    struct proto_eval eval = {.text_size = (uint32_t)(data[3] * (data[3] & 1 ? 1u : 8200u))};
    size_t given = data[4] < size - 5 ? data[4] : size - 5;

    uint64_t id = data[1] + (data[2] & 1) * 44u;
    frame.header = (struct proto_header){.op = ops[data[0] % ARRAY_SIZE(ops)], .id = id ? id : 1};
    size_t body = 0;
    switch (frame.header.op) {
    case PROTO_EVAL:
    case PROTO_BREAKPOINTS:
        memcpy(frame.body, &eval, sizeof eval);
        memcpy(frame.body + sizeof eval, data + 5, given);
        body = sizeof eval + given;
        break;
    case PROTO_TEXT:
    case PROTO_OUTPUT:
        memcpy(frame.body, data + 5, given);
        body = data[2] & 2 ? sizeof frame.body : given;
        break;
    case PROTO_RECORD:
    case PROTO_THREAD:
    case PROTO_ON_CRASH:
    case PROTO_ARMED:
    case PROTO_ALLOCATIONS:
    case PROTO_SAMPLES:
    case PROTO_RELEASE:
        body = order_size(frame.header.op);
        memset(frame.body, 0, body);
        memcpy(frame.body, data + 5, given < body ? given : body);
        break;
    case PROTO_HELLO:
        body = sizeof(struct proto_hello);
        memset(frame.body, 7, body);
        break;
    }
    frame.header.size = (uint32_t)(sizeof frame.header + body);
    return 5 + given;
}

static int feed(void)
{
    uint16_t op = frame.header.op;
    uint64_t id = frame.header.id;
    bool asks = op == PROTO_EVAL || op == PROTO_BREAKPOINTS || op == PROTO_RECORD ||
                op == PROTO_THREAD || op == PROTO_ON_CRASH || op == PROTO_ARMED ||
                op == PROTO_ALLOCATIONS || op == PROTO_SAMPLES || op == PROTO_DETACH;

    if (wire_check(&frame.header, frame.header.size) < 0)
        abort();
    unanswered[id] += asks;
    int r = dispatch(&frame);
    if (r < 0)
        unanswered[id] -= asks;
    if (r < 0 && r != -EPROTO && (r != -EPIPE || op != PROTO_HELLO))
        abort(); /* -EPIPE: it comes while a DETACH is carried out */
    return r;
}

/* All that waits is cancelled or runs to its end; then everybody has an answer. */
static void drain(void)
{
    for (uint64_t id = 1; id < IDS; id++) {
        frame.header = (struct proto_header){sizeof frame.header, PROTO_CANCEL, 0, id};
        if (greeted && dispatch(&frame) < 0)
            abort();
    }
    while (taken || (requests.first == &requests.tidying && !agent_life.detached))
        step_python();
    (void)dispatch_detached(); /* answers the DETACH */
    for (size_t id = 0; id < IDS; id++)
        if (unanswered[id])
            abort();
    /* tidying up may be left where Python's thread is gone: whoever attaches next has it done */
    struct request *left = agent_life.detached ? &requests.tidying : NULL;
    if ((requests.first && requests.first != left) || requests.text_bytes)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    requests_forget();
    agent_life.detaching = agent_life.detached = greeted = false;
    memset(unanswered, 0, sizeof unanswered);
    memset(cancelled, 0, sizeof cancelled);
    taken = NULL;
    begun = false;

    while (size >= 6 && !agent_life.detached) {
        if (data[0] % 4 == 0) {
            step_python();
            data++, size--;
        } else if (data[0] == 255) {
            renew_channel();
            data++, size--;
        } else {
            size_t used = 1 + make_frame(data + 1, size - 1);
            if (feed() < 0)
                renew_channel();
            data += used, size -= used;
        }
        check();
    }
    drain();
    return 0;
}
