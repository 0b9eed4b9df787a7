/* What each frame of an agent does to the requests in flight, and which ones end the session. */
#include "fs/link/exchange.h"
#include "tests/unit/check.h"

#include <errno.h>

static struct exchange exchange;
static struct exchange_request *changed;
static struct wire_frame frame;

static int say(uint16_t op, uint64_t id, const void *body, size_t size)
{
    frame.header = (struct proto_header){(uint32_t)(sizeof frame.header + size), op, 0, id};
    if (size)
        memcpy(frame.body, body, size);
    CHECK_INT(wire_check(&frame.header, frame.header.size), 0);
    return exchange_frame(&exchange, &frame, &changed);
}

static int say_output(uint64_t id, const char *words)
{
    return say(PROTO_OUTPUT, id, words, strlen(words));
}

static int say_done(uint64_t id, int error, uint64_t consumed)
{
    struct proto_done done = {.error = error, .consumed = consumed, .words = "a\nb\x1b[0m"};
    return say(PROTO_DONE, id, &done, sizeof done);
}

static struct exchange_request *begin(uint16_t op, size_t text_size, size_t output_max)
{
    struct exchange_request *request;
    CHECK_INT(exchange_begin(&exchange, op, text_size, output_max, &request), 0);
    return request;
}

/* Ids count on, so that a late frame of an earlier test can't be taken for one of the next. */
static void forget_all(void)
{
    exchange_deinit(&exchange);
    CHECK(exchange.n == 0 && exchange.held == 0);
    exchange.unknown = 0;
}

static void test_eval(void)
{
    struct exchange_request *a = begin(PROTO_EVAL, 10, 100), *b = begin(PROTO_EVAL, 10, 100);

    CHECK(a->id != b->id && a->id && b->id);
    CHECK(say(PROTO_STARTED, b->id, NULL, 0) == 0 && changed == b && b->started && !a->started);
    CHECK(exchange_occupied(&exchange, a) && !exchange_occupied(&exchange, b));
    CHECK(say_output(b->id, "one ") == 0 && !changed);
    CHECK(say_output(a->id, "before it began") == 0);
    CHECK(say_output(b->id, "two") == 0);
    CHECK(say_done(b->id, EIO, 10) == 0 && changed == b && b->finished && !a->finished);
    CHECK(!exchange_occupied(&exchange, a));
    CHECK_STR(b->output.data, "one two");
    CHECK_STR(b->done.words, "a?b?[0m");
    CHECK(b->done.error == EIO && b->done.consumed == 10 && !(b->done.flags & DONE_CUT));

    struct text got = exchange_take_output(&exchange, a);
    CHECK_STR(got.data, "before it began");
    text_deinit(&got);
    CHECK_INT(exchange.held, 7);
    exchange_end(&exchange, b);
    CHECK(exchange.n == 1 && exchange.held == 0);
    forget_all();
}

static void test_output_is_bounded(void)
{
    struct exchange_request *a = begin(PROTO_BREAKPOINTS, 0, 10); /* as of PROTO_EVAL */
    static char much[PROTO_FRAME_MAX - sizeof(struct proto_header)];

    CHECK_INT(say_output(a->id, "0123456"), 0);
    CHECK_INT(say_output(a->id, "789abc"), 0);
    CHECK_STR(a->output.data, "0123456789");
    CHECK_INT(say_done(a->id, 0, 0), 0);
    CHECK(a->done.flags & DONE_CUT);

    /* an agent that doesn't heed the limit at all */
    a = begin(PROTO_EVAL, 0, 10);
    size_t sent = 0;
    int r;
    while ((r = say(PROTO_OUTPUT, a->id, much, sizeof much)) == 0)
        sent += sizeof much;
    CHECK_INT(r, -EPROTO);
    CHECK(sent <= 10 + EXCHANGE_EXCESS_MAX && a->output.size == 10);

    /* empty frames are not for ever either */
    a = begin(PROTO_EVAL, 0, 0);
    for (sent = 0; (r = say_output(a->id, "")) == 0; sent++)
        CHECK(sent <= EXCHANGE_EXCESS_MAX);
    CHECK_INT(r, -EPROTO);
    forget_all();
}

static void test_all_outputs_together_are_bounded(void)
{
    static char much[PROTO_FRAME_MAX - sizeof(struct proto_header)];
    struct exchange_request *each[6];

    for (int i = 0; i < 6; i++) {
        each[i] = begin(PROTO_EVAL, 0, PROTO_OUTPUT_MAX);
        for (size_t sent = 0; sent + sizeof much <= PROTO_OUTPUT_MAX; sent += sizeof much)
            CHECK_INT(say(PROTO_OUTPUT, each[i]->id, much, sizeof much), 0);
        CHECK(exchange.held <= EXCHANGE_HELD_MAX);
    }
    CHECK_INT(exchange.held, EXCHANGE_HELD_MAX);
    CHECK_INT(say_done(each[5]->id, 0, 0), 0);
    CHECK(each[5]->done.flags & DONE_CUT);
    exchange_end(&exchange, each[0]);
    CHECK(exchange.held < EXCHANGE_HELD_MAX);
    forget_all();
}

static void test_rules(void)
{
    struct proto_ready ready = {.version = PROTO_VERSION,
                                .origin = ORIGIN_IMPORTED,
                                .channel_tid = 5,
                                .agent_version = "0.1"};
    struct exchange_request *eval = begin(PROTO_EVAL, 5, 10), *status = begin(PROTO_STATUS, 0, 0),
                            *detach = begin(PROTO_DETACH, 0, 0);

    /* ours to say */
    CHECK_INT(say(PROTO_CANCEL, eval->id, NULL, 0), -EPROTO);
    CHECK(!changed);
    /* answers of another kind of request */
    CHECK_INT(say(PROTO_READY, eval->id, &ready, sizeof ready), -EPROTO);
    CHECK_INT(say(PROTO_READY, detach->id, &ready, sizeof ready), -EPROTO);
    CHECK_INT(say_output(status->id, "x"), -EPROTO);
    CHECK_INT(say_output(detach->id, "x"), -EPROTO);
    CHECK_INT(say(PROTO_STARTED, status->id, NULL, 0), -EPROTO);
    CHECK_INT(say_done(status->id, 0, 0), -EPROTO);
    /* twice */
    CHECK_INT(say(PROTO_STARTED, eval->id, NULL, 0), 0);
    CHECK_INT(say(PROTO_STARTED, eval->id, NULL, 0), -EPROTO);
    /* impossible numbers */
    CHECK_INT(say_done(eval->id, 0, 6), -EPROTO);
    CHECK_INT(say_done(eval->id, -1, 5), -EPROTO);
    CHECK_INT(say_done(eval->id, 4096, 5), -EPROTO);
    ready.version = PROTO_VERSION + 1;
    CHECK_INT(say(PROTO_READY, status->id, &ready, sizeof ready), -EPROTO);
    ready.version = PROTO_VERSION;
    ready.origin = 77;
    CHECK_INT(say(PROTO_READY, status->id, &ready, sizeof ready), -EPROTO);
    ready.origin = ORIGIN_STARTUP;
    memset(ready.agent_version, 'v', sizeof ready.agent_version);
    CHECK_INT(say(PROTO_READY, status->id, &ready, sizeof ready), 0);
    CHECK(changed == status && status->finished && strlen(status->ready.agent_version) == 15);
    /* after the last frame */
    CHECK_INT(say_done(eval->id, 0, 5), 0);
    CHECK_INT(say_output(eval->id, "x"), -EPROTO);
    exchange_end(&exchange, eval);
    CHECK_INT(say_output(exchange.last_id - 2, "x"), -EPROTO);
    forget_all();
}

static void test_unknown_ids(void)
{
    for (int i = 0; i < EXCHANGE_UNKNOWN_MAX; i++)
        CHECK_INT(say_output(exchange.last_id + 1 + i, "x"), 0);
    CHECK_INT(say_output(exchange.last_id + 1, "x"), -EPROTO);
    forget_all();
}

static void test_rings(void)
{
    struct exchange_request *record = begin(PROTO_RECORD, 0, 0);

    for (uint64_t i = exchange.notices;
         i < EXCHANGE_NOTICES_MAX + exchange.begun * EXCHANGE_NOTICES_EACH; i++)
        CHECK(say(PROTO_RINGS, 0, NULL, 0) == 0 && !changed);
    CHECK_INT(say(PROTO_RINGS, 0, NULL, 0), -EPROTO);
    CHECK(say(PROTO_STARTED, record->id, NULL, 0) == 0 && changed == record);
    CHECK_INT(say_output(record->id, "x"), -EPROTO);
    CHECK(say_done(record->id, EOPNOTSUPP, 0) == 0 && changed == record && record->finished);
    record = begin(PROTO_RECORD, 0, 0);
    CHECK_INT(say_done(record->id, 0, 1), -EPROTO); /* there is no text */
    forget_all();
}

static void test_abandoned(void)
{
    struct exchange_request *a = begin(PROTO_EVAL, 5, 10), *b = begin(PROTO_EVAL, 5, 10);
    uint64_t id = a->id;

    CHECK_INT(say_output(id, "abc"), 0);
    exchange_abandon(&exchange, a);
    CHECK_INT(exchange.held, 0);
    CHECK_INT(say_output(id, "def"), 0);
    CHECK(say(PROTO_STARTED, id, NULL, 0) == 0 && !changed);
    CHECK(exchange.held == 0 && exchange.n == 2);
    CHECK(say_done(id, EINTR, 0) == 0 && !changed);
    CHECK_INT(exchange.n, 1);
    CHECK_INT(say_done(id, EINTR, 0), -EPROTO);
    /* finished before it was given up */
    CHECK_INT(say_done(b->id, 0, 0), 0);
    exchange_abandon(&exchange, b);
    CHECK_INT(exchange.n, 0);
    forget_all();
}

static void test_too_many(void)
{
    struct exchange_request *request;

    for (int i = 0; i < PROTO_REQUESTS_MAX; i++)
        (void)begin(PROTO_EVAL, 0, 0);
    CHECK_INT(exchange_begin(&exchange, PROTO_EVAL, 0, 0, &request), -EBUSY);
    forget_all();
}

int main(void)
{
    test_eval();
    test_output_is_bounded();
    test_all_outputs_together_are_bounded();
    test_rules();
    test_unknown_ids();
    test_rings();
    test_abandoned();
    test_too_many();
    return 0;
}
