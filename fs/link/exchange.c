#include "fs/link/exchange.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ERRNO_MAX 4095 /* as the kernel bounds it */

int exchange_begin(struct exchange *exchange, uint16_t op, size_t text_size, size_t output_max,
                   struct exchange_request **out)
{
    if (exchange->n >= PROTO_REQUESTS_MAX)
        return -EBUSY;
    struct exchange_request *request = calloc(1, sizeof *request);
    if (!request)
        return -ENOMEM;

    request->id = ++exchange->last_id;
    exchange->begun++;
    request->op = op;
    request->wake = -1;
    request->text_size = text_size;
    request->output_max = output_max;
    request->next = exchange->requests;
    exchange->requests = request;
    exchange->n++;
    *out = request;
    return 0;
}

bool exchange_occupied(const struct exchange *exchange, const struct exchange_request *request)
{
    for (const struct exchange_request *r = exchange->requests; r; r = r->next)
        if (r != request && r->started && !r->finished)
            return true;
    return false;
}

struct text exchange_take_output(struct exchange *exchange, struct exchange_request *request)
{
    struct text output = request->output;

    exchange->held -= output.size;
    request->output = TEXT_INIT;
    return output;
}

static void drop_output(struct exchange *exchange, struct exchange_request *request)
{
    struct text output = exchange_take_output(exchange, request);
    text_deinit(&output);
}

void exchange_end(struct exchange *exchange, struct exchange_request *request)
{
    for (struct exchange_request **at = &exchange->requests; *at; at = &(*at)->next) {
        if (*at != request)
            continue;
        *at = request->next;
        exchange->n--;
        drop_output(exchange, request);
        free(request);
        return;
    }
}

void exchange_abandon(struct exchange *exchange, struct exchange_request *request)
{
    if (request->finished) {
        exchange_end(exchange, request);
        return;
    }
    drop_output(exchange, request);
    request->abandoned = true;
    request->wake = -1;
}

void exchange_deinit(struct exchange *exchange)
{
    while (exchange->requests)
        exchange_end(exchange, exchange->requests);
}

/* The request that a frame speaks of. -ENOENT: none, and the frame can be dropped; -EPROTO. */
static int find_request(struct exchange *exchange, uint64_t id, struct exchange_request **out)
{
    if (id > exchange->last_id)
        return ++exchange->unknown > EXCHANGE_UNKNOWN_MAX ? -EPROTO : -ENOENT;
    for (struct exchange_request *request = exchange->requests; request; request = request->next) {
        if (request->id != id)
            continue;
        *out = request;
        return request->finished ? -EPROTO : 0;
    }
    return -EPROTO; /* its last frame has been */
}

/* Makes words of a target fit for a terminal: one line, NUL-terminated. */
static void clean_words(char *words, size_t size)
{
    words[size - 1] = 0;
    for (char *p = words; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            *p = '?';
}

int exchange_ready(const struct wire_frame *frame, struct proto_ready *out)
{
    struct proto_ready ready;

    if (frame->header.op != PROTO_READY || wire_body_size(frame) != sizeof ready)
        return -EPROTO;
    memcpy(&ready, frame->body, sizeof ready);
    if (ready.version != PROTO_VERSION || ready.origin < ORIGIN_INJECTED ||
        ready.origin > ORIGIN_REMOTE_EXEC || ready.channel_tid <= 0 || ready.python_tid < 0)
        return -EPROTO;
    clean_words(ready.agent_version, sizeof ready.agent_version);
    *out = ready;
    return 0;
}

static int apply_output(struct exchange *exchange, struct exchange_request *request,
                        const struct wire_frame *frame)
{
    size_t size = wire_body_size(frame), fits = 0;

    if (request->op != PROTO_EVAL && request->op != PROTO_BREAKPOINTS)
        return -EPROTO;
    if (request->sent < request->output_max)
        fits = request->output_max - request->sent;
    request->sent += size ? size : 1; /* else empty frames could go on for ever */
    if (request->sent > request->output_max + EXCHANGE_EXCESS_MAX)
        return -EPROTO;
    if (request->abandoned)
        return 0;
    if (fits > EXCHANGE_HELD_MAX - exchange->held)
        fits = EXCHANGE_HELD_MAX - exchange->held;
    if (fits > size)
        fits = size;
    size_t before = request->output.size;
    text_add(&request->output, (const char *)frame->body, fits);
    exchange->held += request->output.size - before;
    request->cut |= request->output.size - before < size;
    return 0;
}

static int apply_done(struct exchange_request *request, const struct wire_frame *frame)
{
    struct proto_done *done = &request->done;

    memcpy(done, frame->body, sizeof *done);
    if (done->error < 0 || done->error > ERRNO_MAX || done->consumed > request->text_size ||
        (request->op == PROTO_STATUS && done->error == 0))
        return -EPROTO;
    clean_words(done->words, sizeof done->words);
    if (request->cut)
        done->flags |= DONE_CUT;
    request->finished = true;
    return 0;
}

/* Whoever says that more often than there can be changes keeps us busy. */
static int apply_notice(struct exchange *exchange)
{
    uint64_t most = EXCHANGE_NOTICES_MAX + exchange->begun * EXCHANGE_NOTICES_EACH;
    return ++exchange->notices > most ? -EPROTO : 0;
}

void exchange_new_second(struct exchange *exchange) { exchange->happened = 0; }

int exchange_frame(struct exchange *exchange, const struct wire_frame *frame,
                   struct exchange_request **changed)
{
    struct exchange_request *request;

    *changed = NULL;
    if (frame->header.op < PROTO_READY)
        return -EPROTO; /* ours to send, not to receive */
    if (frame->header.op == PROTO_HAPPENED)
        return ++exchange->happened > EXCHANGE_HAPPENED_MAX ? -EPROTO : 0;
    if (frame->header.op >= PROTO_RINGS)
        return apply_notice(exchange);
    int r = find_request(exchange, frame->header.id, &request);
    if (r < 0)
        return r == -ENOENT ? 0 : r;

    switch (frame->header.op) {
    case PROTO_OUTPUT: return apply_output(exchange, request, frame);
    case PROTO_STARTED:
        if (request->op == PROTO_STATUS || request->started)
            return -EPROTO;
        request->started = true;
        break;
    case PROTO_READY:
        r = request->op == PROTO_STATUS ? exchange_ready(frame, &request->ready) : -EPROTO;
        request->finished = r == 0;
        break;
    default: /* PROTO_DONE */ r = apply_done(request, frame); break;
    }
    if (r < 0)
        return r;
    if (!request->abandoned)
        *changed = request;
    else if (request->finished)
        exchange_end(exchange, request);
    return 0;
}
