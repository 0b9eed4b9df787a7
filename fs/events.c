#include "fs/events.h"

#include "fs/cleanup.h"
#include "fs/clock.h"
#include "fs/feed.h"
#include "fs/requests.h"
#include "fs/worker.h"

#include <errno.h>
#include <poll.h>

#define PAUSE_MIN 5000000u       /* between two looks; twice as long after each in vain */
#define PAUSE_MAX 80000000u      /* ns */
#define LOOKUP_INTERVAL 80000000u /* at processes themselves */

/* A read(2) that waits for its answer. */
struct waiter {
    fuse_req_t req;
    struct event_reader *reader;
    struct request request;
    size_t size;
    bool queued;
    bool interrupted;        /* before it was queued */
    int error;
    struct text answer;
    struct waiter *next;
};

struct event_reader {
    struct events *events;
    struct source *source;
    struct feed_cursor at;
    struct text lines;       /* taken from there, and not read yet from `given` on */
    size_t given;
    struct waiter *waiters;  /* oldest first */
    struct fuse_pollhandle *poll; /* NULL: nobody polls */
    struct event_reader *next;
};

/* A process that has readers. Only the thread takes it out of the list. */
struct source {
    struct feed *feed;
    struct event_reader *readers;
    struct source *next;
};

struct events {
    struct registry *registry;
    pthread_mutex_t lock;    /* guards what follows; what answers a request doesn't hold it */
    pthread_cond_t changed;
    struct source *first;
    unsigned n;              /* readers */
    bool running, ending;
    pthread_t thread;
};

/* ---- answering; with the lock, but for finish() ---- */

static void push(struct waiter **list, struct waiter *waiter)
{
    while (*list)
        list = &(*list)->next;
    waiter->next = NULL;
    *list = waiter;
}

static bool is_readable(const struct event_reader *reader)
{
    return reader->lines.size > reader->given || feed_readable(reader->source->feed, &reader->at);
}

static void take(struct event_reader *reader, size_t size, struct text *out)
{
    if (reader->given == reader->lines.size) {
        text_clear(&reader->lines);
        reader->given = 0;
        feed_take(reader->source->feed, &reader->at, size, &reader->lines);
    }
    size_t left = reader->lines.size - reader->given;
    size_t n = left < size ? left : size;
    if (n)
        text_add(out, reader->lines.data + reader->given, n);
    reader->given += n;
}

/* Those of a reader that can be answered; the rest waits on. */
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

static void collect_all(struct source *source, struct waiter **done)
{
    for (struct event_reader *reader = source->readers; reader; reader = reader->next)
        collect(reader, done);
}

static void waiter_free(struct waiter *waiter)
{
    text_deinit(&waiter->answer);
    free(waiter);
}

/* Sends the answers. */
static void finish(struct waiter *done)
{
    while (done) {
        struct waiter *waiter = done;
        done = waiter->next;
        fuse_req_interrupt_func(waiter->req, NULL, NULL); /* from now on on_interrupt() doesn't know it */
        request_end(&waiter->request);
        if (waiter->error)
            fuse_reply_err(waiter->req, waiter->error);
        else
            fuse_reply_buf(waiter->req, waiter->answer.data, waiter->answer.size);
        waiter_free(waiter);
    }
}

/* ---- the thread ---- */

static bool sleep_until_look(struct events *events, uint64_t pause)
{
    _guard_mutex_(&events->lock);
    while (!events->first && !events->ending)
        pthread_cond_wait(&events->changed, &events->lock);
    const struct timespec until = timespec_of(monotonic_ns() + pause);
    while (!events->ending &&
           pthread_cond_clockwait(&events->changed, &events->lock, CLOCK_MONOTONIC, &until) == 0)
        ;
    return !events->ending;
}

static void drop_unread(struct events *events)
{
    _guard_mutex_(&events->lock);
    for (struct source **at = &events->first; *at;) {
        struct source *source = *at;
        if (source->readers) {
            at = &source->next;
            continue;
        }
        *at = source->next;
        feed_free(source->feed);
        free(source);
    }
}

/* Has the registry see what became of a process: an agent, an end, another program. */
static void look_up(struct events *events, struct process *process)
{
    struct process *now = NULL;

    if (process_ended(process))
        return;
    if (!process_alive(process))
        registry_notice(events->registry, process->pid);
    else if (registry_lookup(events->registry, process->pid, &now) == 0)
        process_unref(now);
}

/* With the lock. */
static void forget_read(struct source *source)
{
    uint64_t line = UINT64_MAX;

    for (const struct event_reader *reader = source->readers; reader; reader = reader->next)
        line = reader->at.line < line ? reader->at.line : line;
    feed_forget(source->feed, line);
}

/* Whether anything had happened. */
static bool look(struct events *events)
{
    struct waiter *done = NULL;
    bool any = false;
    {
        _guard_mutex_(&events->lock);
        for (struct source *source = events->first; source; source = source->next) {
            any |= feed_look(source->feed);
            collect_all(source, &done);
            forget_read(source);
        }
    }
    finish(done);
    return any;
}

static struct source *first_source(struct events *events)
{
    _guard_mutex_(&events->lock);
    return events->first;
}

static void *events_main(void *arg)
{
    struct events *events = arg;
    uint64_t pause = PAUSE_MIN, looked_up = 0;

    while (sleep_until_look(events, pause)) {
        drop_unread(events);
        uint64_t now = monotonic_ns();
        if (now - looked_up >= LOOKUP_INTERVAL) {
            looked_up = now;
            for (struct source *source = first_source(events); source; source = source->next)
                look_up(events, feed_process(source->feed));
        }
        if (look(events))
            pause = PAUSE_MIN;
        else
            pause = pause * 2 < PAUSE_MAX ? pause * 2 : PAUSE_MAX;
    }
    return NULL;
}

/* With the lock. */
static int start(struct events *events)
{
    int r = events->running ? 0 : worker_start(events_main, events, "probefs-events", &events->thread);
    events->running = events->running || r == 0;
    return r;
}

/* ---- its life ---- */

int events_new(struct registry *registry, struct events **out)
{
    struct events *events = calloc(1, sizeof *events);
    if (!events)
        return -ENOMEM;
    events->registry = registry;
    pthread_mutex_init(&events->lock, NULL);
    pthread_cond_init(&events->changed, NULL);
    *out = events;
    return 0;
}

void events_end(struct events *events)
{
    struct waiter *done = NULL;
    {
        _guard_mutex_(&events->lock);
        events->ending = true;
        pthread_cond_broadcast(&events->changed);
    }
    if (events->running)
        pthread_join(events->thread, NULL);
    events->running = false;
    {
        _guard_mutex_(&events->lock);
        for (struct source *source = events->first; source; source = source->next)
            for (struct event_reader *reader = source->readers; reader; reader = reader->next)
                for (struct waiter *waiter; (waiter = reader->waiters);) {
                    reader->waiters = waiter->next;
                    waiter->queued = false;
                    waiter->error = ENODEV;
                    push(&done, waiter);
                }
    }
    finish(done);
}

void events_free(struct events *events)
{
    if (!events)
        return;
    events_end(events);
    drop_unread(events);
    pthread_cond_destroy(&events->changed);
    pthread_mutex_destroy(&events->lock);
    free(events);
}

/* ---- readers ---- */

/* With the lock. The thread frees a source that gets no reader. */
static int source_for(struct events *events, struct process *process, struct source **out)
{
    struct source *source = events->first;

    while (source && feed_process(source->feed) != process)
        source = source->next;
    if (!source) {
        source = calloc(1, sizeof *source);
        int r = source ? feed_new(process, &source->feed) : -ENOMEM;
        if (r < 0) {
            free(source);
            return r;
        }
        source->next = events->first;
        events->first = source;
    }
    *out = source;
    return 0;
}

int event_reader_new(struct events *events, struct process *process, struct text *why, struct event_reader **out)
{
    struct event_reader *reader = calloc(1, sizeof *reader);
    struct waiter *done = NULL;
    if (!reader)
        return -ENOMEM;

    pthread_mutex_lock(&events->lock);
    int r = events->ending ? -ENODEV : events->n >= EVENT_READERS_MAX ? -ENFILE : start(events);
    if (r == -ENFILE)
        text_printf(why, "events are read %u times already: close some", EVENT_READERS_MAX);
    if (r == 0)
        r = source_for(events, process, &reader->source);
    if (r == 0) {
        feed_look(reader->source->feed); /* what was before is for others */
        collect_all(reader->source, &done);
        reader->events = events;
        reader->at = feed_end(reader->source->feed);
        reader->next = reader->source->readers;
        reader->source->readers = reader;
        events->n++;
        pthread_cond_broadcast(&events->changed);
    }
    pthread_mutex_unlock(&events->lock);
    finish(done);
    if (r < 0)
        free(reader);
    else
        *out = reader;
    return r;
}

void event_reader_free(struct event_reader *reader)
{
    if (!reader)
        return;
    {
        _guard_mutex_(&reader->events->lock);
        struct event_reader **at = &reader->source->readers;
        while (*at != reader)
            at = &(*at)->next;
        *at = reader->next;
        reader->events->n--;
    }
    if (reader->poll)
        fuse_pollhandle_destroy(reader->poll);
    text_deinit(&reader->lines);
    free(reader);
}

/* Ctrl-C. One that isn't queued yet is answered by who queues it; one that isn't any more has its answer. libfuse
 * holds the request's own lock meanwhile, which finish() waits for. */
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
    request_end(&waiter->request);
    fuse_reply_err(req, EINTR);
    waiter_free(waiter);
}

void event_reader_read(struct event_reader *reader, fuse_req_t req, size_t size, bool nonblocking)
{
    struct events *events = reader->events;
    struct waiter *waiter = calloc(1, sizeof *waiter), *done = NULL;

    if (!waiter) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    *waiter = (struct waiter){.req = req, .reader = reader, .size = size};
    request_begin(&waiter->request, fuse_req_ctx(req)->pid);
    fuse_req_interrupt_func(req, on_interrupt, waiter);
    {
        _guard_mutex_(&events->lock);
        feed_look(reader->source->feed);
        collect_all(reader->source, &done);
        bool ready = !reader->waiters && is_readable(reader);
        if (events->ending)
            waiter->error = ENODEV;
        else if (!ready && waiter->interrupted)
            waiter->error = EINTR;
        else if (!ready && nonblocking)
            waiter->error = EAGAIN;
        else if (ready)
            take(reader, size, &waiter->answer);
        else
            waiter->queued = true;
        push(waiter->queued ? &reader->waiters : &done, waiter);
    }
    finish(done);
}

void event_reader_poll(struct event_reader *reader, fuse_req_t req, struct fuse_pollhandle *handle)
{
    struct waiter *done = NULL;
    struct fuse_pollhandle *old;
    bool ready;
    {
        _guard_mutex_(&reader->events->lock);
        feed_look(reader->source->feed);
        collect_all(reader->source, &done);
        ready = is_readable(reader);
        old = handle ? reader->poll : NULL;
        if (handle)
            reader->poll = handle;
    }
    finish(done);
    if (old)
        fuse_pollhandle_destroy(old);
    fuse_reply_poll(req, ready ? POLLIN | POLLRDNORM : 0);
}
