/* What is asked of readers, and the answers: those that have to wait are kept
 * until there is something. */
#include "fs/events/events.h"

#include "agent/base/cleanup.h"
#include "fs/format/event.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>

#define FRONT_MAX (HOST_NAME_MAX + 64)

static void push(struct waiter **list, struct waiter *waiter)
{
    while (*list)
        list = &(*list)->next;
    waiter->next = NULL;
    *list = waiter;
}

/* There is an end where there is one process. */
static bool has_lines(const struct tap *tap)
{
    return tap->reader->all ? tap->at.line < feed_end(tap->source->feed).line
                            : feed_readable(tap->source->feed, &tap->at);
}

static bool is_readable(const struct event_reader *reader)
{
    bool readable = reader->lines.size > reader->given || reader->lost > 0;

    for (const struct tap *tap = reader->taps; tap && !readable; tap = tap->next_of_reader)
        readable = has_lines(tap);
    return readable;
}

/* The next one, from that on which lines were taken from last, that has any; NULL: none. */
static struct tap *next_tap(const struct event_reader *reader)
{
    struct tap *from = reader->last && reader->last->next_of_reader ? reader->last->next_of_reader
                                                                    : reader->taps;
    struct tap *tap = from;

    while (tap && !has_lines(tap)) {
        tap = tap->next_of_reader ? tap->next_of_reader : reader->taps;
        if (tap == from)
            return NULL;
    }
    return tap;
}

/* What a line begins with where they are of many processes. */
static void print_front(const struct event_reader *reader, int64_t rank, char front[FRONT_MAX])
{
    front[0] = 0;
    if (reader->all && rank < 0)
        snprintf(front, FRONT_MAX, "\"host\": \"%s\", \"rank\": null, ", reader->host);
    else if (reader->all)
        snprintf(front, FRONT_MAX, "\"host\": \"%s\", \"rank\": %ld, ", reader->host, (long)rank);
}

static void take_lines(struct event_reader *reader, struct tap *tap, size_t size)
{
    char front[FRONT_MAX];

    print_front(reader, feed_process(tap->source->feed)->rank, front);
    feed_take(tap->source->feed, &tap->at, size, front, &reader->lines);
}

/* Takes what was lost of processes that are gone. */
static void take_lost(struct event_reader *reader)
{
    _cleanup_(text_deinit) struct text line = TEXT_INIT;
    char front[FRONT_MAX];

    if (reader->kind == FEED_LIVE) {
        text_printf(&reader->lines, "# %lu blocks were lost\n\n", (unsigned long)reader->lost);
        reader->lost = 0;
        return;
    }
    print_front(reader, -1, front);
    event_text_lost(0, reader->lost, &line);
    text_printf(&reader->lines, "{%s%s", front, line.data ? line.data + 1 : "}\n");
    reader->lost = 0;
}

static void take(struct event_reader *reader, size_t size, struct text *out)
{
    if (reader->given == reader->lines.size) {
        text_clear(&reader->lines);
        reader->given = 0;
        if (reader->lost)
            take_lost(reader);
        struct tap *tap = next_tap(reader);
        if (tap)
            take_lines(reader, tap, size);
        reader->last = tap;
    }
    size_t left = reader->lines.size - reader->given;
    size_t n = left < size ? left : size;
    if (n)
        text_add(out, reader->lines.data + reader->given, n);
    reader->given += n;
}

/* Collects the waiters of a reader that can be answered; the rest waits on. */
static void collect(struct event_reader *reader, struct waiter **done)
{
    while (reader->waiters && is_readable(reader)) {
        struct waiter *waiter = reader->waiters;
        reader->waiters = waiter->next;
        waiter->queued = false;
        take(reader, waiter->size, &waiter->answer);
        waiter->error = -waiter->answer.error;
        push(done, waiter);
    }
    if (reader->poll && is_readable(reader)) {
        fuse_lowlevel_notify_poll(reader->poll);
        fuse_pollhandle_destroy(steal_pointer(reader->poll));
    }
}

void event_skip_old(struct source *source)
{
    for (struct tap *tap = source->taps; tap; tap = tap->next_of_source) {
        if (tap->since != 0)
            feed_skip(source->feed, &tap->at, tap->since);
        tap->since = 0;
    }
}

void event_collect(struct source *source, struct waiter **done)
{
    for (struct tap *tap = source->taps; tap; tap = tap->next_of_source)
        collect(tap->reader, done);
}

void event_collect_failed(struct event_reader *reader, struct waiter **done, int error)
{
    for (struct waiter *waiter; (waiter = reader->waiters);) {
        reader->waiters = waiter->next;
        waiter->queued = false;
        waiter->error = error;
        push(done, waiter);
    }
}

static void waiter_free(struct waiter *waiter)
{
    text_deinit(&waiter->answer);
    free(waiter);
}

void event_finish(struct waiter *done)
{
    while (done) {
        struct waiter *waiter = done;
        done = waiter->next;
        /* from now on on_interrupt() doesn't know it */
        fuse_req_interrupt_func(waiter->req, NULL, NULL);
        callers_remove(&waiter->request);
        if (waiter->error)
            fuse_reply_err(waiter->req, waiter->error);
        else
            fuse_reply_buf(waiter->req, waiter->answer.data, waiter->answer.size);
        waiter_free(waiter);
    }
}

/* Sees what there is by now, where that is quick. */
static void look(struct event_reader *reader, struct waiter **done)
{
    if (reader->all)
        return;
    source_look(reader->events, reader->taps->source);
    event_collect(reader->taps->source, done);
}

/* Ctrl-C. One that isn't queued yet is answered by who queues it; one that isn't any more has its
 * answer. libfuse holds the request's own lock meanwhile, which event_finish() waits for. */
static void on_interrupt(fuse_req_t req, void *arg)
{
    struct waiter *waiter = arg;
    bool ours;
    {
        _guard_mutex_(&waiter->reader->events->lock);
        waiter->interrupted = true;
        ours = waiter->queued;
        if (ours) {
            struct waiter **at = &waiter->reader->waiters;
            while (*at != waiter)
                at = &(*at)->next;
            *at = waiter->next;
        }
    }
    if (!ours)
        return;
    callers_remove(&waiter->request);
    fuse_reply_err(req, EINTR);
    waiter_free(waiter);
}

void event_reader_read(struct event_reader *reader, fuse_req_t req, size_t size, int flags)
{
    struct events *events = reader->events;
    struct waiter *waiter, *done = NULL;

    if (flags & O_NOFOLLOW && !reader->polled) {
        fuse_reply_buf(req, NULL, 0);
        return;
    }
    waiter = calloc(1, sizeof *waiter);
    if (!waiter) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    *waiter = (struct waiter){.req = req, .reader = reader, .size = size};
    callers_add(&waiter->request, fuse_req_ctx(req)->pid);
    fuse_req_interrupt_func(req, on_interrupt, waiter);
    {
        _guard_mutex_(&events->lock);
        look(reader, &done);
        bool ready = !reader->waiters && is_readable(reader);
        if (events->ending)
            waiter->error = ENODEV;
        else if (!ready && waiter->interrupted)
            waiter->error = EINTR;
        else if (!ready && flags & O_NONBLOCK)
            waiter->error = EAGAIN;
        else if (ready)
            take(reader, size, &waiter->answer);
        else
            waiter->queued = true;
        push(waiter->queued ? &reader->waiters : &done, waiter);
    }
    event_finish(done);
}

void event_reader_poll(struct event_reader *reader, fuse_req_t req, struct fuse_pollhandle *handle)
{
    struct waiter *done = NULL;
    struct fuse_pollhandle *old;
    bool ready;

    atomic_store(&reader->polled, true);
    {
        _guard_mutex_(&reader->events->lock);
        look(reader, &done);
        ready = is_readable(reader);
        old = handle ? reader->poll : NULL;
        if (handle)
            reader->poll = handle;
    }
    event_finish(done);
    if (old)
        fuse_pollhandle_destroy(old);
    fuse_reply_poll(req, ready ? POLLIN | POLLRDNORM : 0);
}
