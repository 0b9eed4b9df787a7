/* The readers of <pid>/events, and of all/events. Each gets what happens after its open; one that has read all of it
 * waits, which takes no thread: its request is answered when something comes, by the one thread that looks at all
 * processes that have readers. There is nothing to look at where nobody reads.
 *
 * The thread looks often while something comes and rarely else, at what can be seen from outside (feed.h):
 * nobody in the process waits, or takes part. */
#pragma once

#define FUSE_USE_VERSION 314

#include "fs/access.h"
#include "fs/registry.h"

#include <fuse_lowlevel.h>

#define EVENT_READERS_MAX 1024u /* at once, of all processes */

struct events;
struct event_reader;

/* The registry must outlive it. -ENOMEM. */
int events_new(struct registry *registry, struct events **out);
/* Nobody waits any more: all get ENODEV. */
void events_end(struct events *events);
void events_free(struct events *events); /* once its readers are; NULL is fine */

/* -ENFILE: there are too many, which why says; -EAGAIN: no thread; -ENOMEM. */
int event_reader_new(struct events *events, struct process *process, struct text *why, struct event_reader **out);
/* Of all processes that the caller may look at, those to come as well: it never ends. Each line begins with host and
 * rank. access must outlive it. Also what listing processes fails with. */
int event_reader_new_all(struct events *events, const struct access *access, const struct access_caller *caller,
                         struct text *why, struct event_reader **out);
/* None of its requests waits. NULL is fine. */
void event_reader_free(struct event_reader *reader);

/* Answers a read(2), now or later: at most `size` bytes, whole lines where these fit; 0 at the end; EAGAIN
 * where it would wait and mustn't; EINTR at a signal. */
void event_reader_read(struct event_reader *reader, fuse_req_t req, size_t size, bool nonblocking);
/* Answers a poll(2). Takes over the handle, which may be NULL. */
void event_reader_poll(struct event_reader *reader, fuse_req_t req, struct fuse_pollhandle *handle);
