/* The frames of a hostile agent, among requests that come and go: what is kept of them stays within
 * its bounds, and what is handed on can be used unchecked. */
#include "fs/link/exchange.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct wire_frame frame;

static struct exchange_request *nth_request(const struct exchange *exchange, unsigned n)
{
    for (struct exchange_request *r = exchange->requests; r; r = r->next)
        if (!r->abandoned && n-- == 0)
            return r;
    return NULL;
}

/* What the daemon does between two frames. */
static void act(struct exchange *exchange, uint8_t what, uint8_t which)
{
    static const uint16_t ops[] = {PROTO_EVAL, PROTO_RECORD, PROTO_STATUS, PROTO_DETACH};
    struct exchange_request *request = nth_request(exchange, which % 8);
    struct text output;

    switch (what % 4) {
    case 0:
        if (exchange_begin(exchange, ops[which % 4], which, which * 16u, &request) < 0 &&
            exchange->n < PROTO_REQUESTS_MAX)
            abort();
        return;
    case 1:
        if (request && (request->finished || which & 128))
            exchange_end(exchange, request);
        return;
    case 2:
        if (request)
            exchange_abandon(exchange, request);
        return;
    default:
        if (!request)
            return;
        output = exchange_take_output(exchange, request);
        text_deinit(&output);
    }
}

static void check(const struct exchange *exchange)
{
    size_t n = 0, held = 0;

    for (const struct exchange_request *r = exchange->requests; r; r = r->next) {
        n++;
        held += r->output.size;
        if (r->output.size > r->output_max || (r->abandoned && (r->finished || r->output.size)))
            abort();
        if (!r->finished)
            continue;
        if (r->op == PROTO_STATUS && r->done.error == 0) {
            if (memchr(r->ready.agent_version, 0, sizeof r->ready.agent_version) == NULL)
                abort();
            continue;
        }
        if (r->done.consumed > r->text_size || r->done.error < 0 || r->done.error > 4095 ||
            memchr(r->done.words, 0, sizeof r->done.words) == NULL ||
            strpbrk(r->done.words, "\n\r\x1b\x7f"))
            abort();
    }
    if (n != exchange->n || n > PROTO_REQUESTS_MAX || held != exchange->held ||
        held > EXCHANGE_HELD_MAX || exchange->unknown > EXCHANGE_UNKNOWN_MAX + 1 ||
        exchange->happened > EXCHANGE_HAPPENED_MAX + 1 ||
        exchange->notices > EXCHANGE_NOTICES_MAX + exchange->begun * EXCHANGE_NOTICES_EACH)
        abort();
}

/* Makes a well-formed frame of the input: op, id, then bytes of the body, the rest
 * zero. Returns the bytes used. */
static size_t make_frame(const struct exchange *exchange, const uint8_t *data, size_t size)
{
    static const uint16_t ops[] = {PROTO_READY, PROTO_STARTED, PROTO_OUTPUT,   PROTO_DONE,
                                   PROTO_EVAL,  PROTO_CRASHED, PROTO_HAPPENED, PROTO_RINGS};
    size_t given = data[2] < size - 3 ? data[2] : size - 3, body = given;

    frame.header = (struct proto_header){.op = ops[data[0] % 8], .id = exchange->last_id + 2};
    frame.header.id -= data[1] % 32 < frame.header.id ? data[1] % 32 : 0;
    switch (frame.header.op) {
    case PROTO_READY: body = sizeof(struct proto_ready); break;
    case PROTO_STARTED: body = 0; break;
    case PROTO_HAPPENED:
    case PROTO_RINGS: body = 0, frame.header.id = 0; break;
    case PROTO_CRASHED: body = sizeof(struct proto_crashed), frame.header.id = 0; break;
    case PROTO_DONE: body = sizeof(struct proto_done); break;
    case PROTO_EVAL: body = sizeof(struct proto_eval); break;
    case PROTO_OUTPUT: body = data[0] & 128 ? sizeof frame.body : given; break;
    }
    memset(frame.body, 0, body);
    memcpy(frame.body, data + 3, given < body ? given : body);
    frame.header.size = (uint32_t)(sizeof frame.header + body);
    return 3 + given;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct exchange exchange = {.last_id = 1};
    int r = 0;

    while (r == 0 && size >= 4) {
        if (data[0] & 1) {
            act(&exchange, data[1], data[2]);
            data += 3, size -= 3;
        } else {
            struct exchange_request *changed;
            size_t used = make_frame(&exchange, data + 1, size - 1);
            if (wire_check(&frame.header, frame.header.size) < 0)
                abort();
            r = exchange_frame(&exchange, &frame, &changed);
            if ((r != 0 && r != -EPROTO) || (changed && changed->abandoned) || (r && changed))
                abort();
            data += 1 + used, size -= 1 + used;
        }
        if (r == 0)
            check(&exchange);
    }
    exchange_deinit(&exchange);
    if (exchange.n || exchange.held)
        abort();
    return 0;
}
