/* What the readers of events (event_reader.c) and the thread that looks for them (events.c) share. */
#pragma once

#include "fs/events.h"
#include "fs/feed.h"
#include "fs/requests.h"

#include <limits.h>

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

/* A process that has readers. Only the thread takes it out of the list. */
struct source {
    struct feed *feed;
    struct tap *taps;
    struct source *next;
};

/* How far one reader has come with one process. */
struct tap {
    struct event_reader *reader;
    struct source *source;
    struct feed_cursor at;
    struct tap *next_of_source, *next_of_reader;
};

struct event_reader {
    struct events *events;
    struct tap *taps;        /* one; of one that reads of all processes, those that it may look at */
    struct tap *last;        /* which its lines were taken from; NULL: none of those */
    struct text lines;       /* taken from there, and not read yet from `given` on */
    size_t given;
    struct waiter *waiters;  /* oldest first */
    struct fuse_pollhandle *poll; /* NULL: nobody polls */

    /* of one that reads of all processes */
    bool all;
    char host[HOST_NAME_MAX + 1];
    const struct access *access;
    struct access_caller caller; /* as it was when it was opened */
    double since;            /* [s] since 1970, when it was opened */
    uint64_t lost;           /* events of processes that it didn't get to while they were kept */
    uint64_t serial;         /* of the newest process that was decided upon */
    struct event_reader *next; /* among those */
};

struct events {
    struct registry *registry;
    pthread_mutex_t lock;    /* guards what follows; what answers a request doesn't hold it */
    pthread_cond_t changed;
    struct source *first;
    struct event_reader *all; /* those that read of all processes */
    unsigned n;              /* readers */
    bool running, ending;
    pthread_t thread;
};

/* Starts the thread, if it doesn't run. With the lock. */
int events_start(struct events *events);

/* All the following with the lock, but for event_finish(). */

/* Queues, for event_finish(), the waiters of this source's readers that can be answered; the rest waits on. */
void event_collect(struct source *source, struct waiter **done);
/* The same for all that wait of one reader, with an error. */
void event_collect_failed(struct event_reader *reader, struct waiter **done, int error);
/* Sends the answers. */
void event_finish(struct waiter *done);
/* Of one that reads of all processes: adds those that came since, and drops those that ended and have been read of.
 * -ENOMEM. */
int event_reader_update(struct event_reader *reader, const struct process_list *list);
