/* The readers of <pid>/events, and of all/events; of <pid>/profile/live, and of all/profile/live.
 * Each gets what happens after its open; one that has read all of it waits, which takes no thread:
 * its request is answered when something comes, by the one thread that looks at all processes that
 * have readers. There is nothing to look at where nobody reads. What is to be looked at another
 * thread finds.
 *
 * It looks often while something comes and rarely else, at what can be seen from outside
 * (feed.h), and at once where an agent says that there is something: nobody in the process waits.
 */
#pragma once

#define FUSE_USE_VERSION 314

#include "fs/access/access.h"
#include "fs/base/shares.h"
#include "fs/events/feed.h"
#include "fs/events/seen.h"
#include "fs/process/jobs.h"
#include "fs/trace/callers.h"

#include <fuse_lowlevel.h>
#include <limits.h>

#define EVENT_READERS_MAX 1024u /* at once, of all processes ... */
#define EVENT_READERS_EACH 256u /* ... of one user, and ... */
#define EVENT_READERS_KEPT 64u  /* ... for root alone */
#define EVENTS_ASKED_MAX 64u    /* processes about which others are asked at once ... */
#define EVENTS_ASKED_EACH 8u    /* ... of one user, and ... */
#define EVENTS_ASKED_KEPT 16u   /* ... for root's */

struct events;
struct event_reader;

/* The registry must outlive it. -ENOMEM. */
int events_new(struct registry *registry, struct events **out);
/* Nobody waits any more: all get ENODEV. */
void events_end(struct events *events);
void events_free(struct events *events); /* once its readers are; NULL is fine */

/* -ENFILE: there are too many, of all or of this user, which why says; -EAGAIN: no thread; -ENOMEM.
 */
int event_reader_new(struct events *events, struct process *process, enum feed_kind kind, uid_t uid,
                     struct text *why, struct event_reader **out);
/* Reads the events of all processes that the caller may look at, those to come as well: it never
 * ends. Each line begins with host and rank. access must outlive it. job: of those alone that are
 * in that job of uid's; NULL: all. Also what listing processes fails with. */
int event_reader_new_all(struct events *events, const struct access *access,
                         const struct access_caller *caller, enum feed_kind kind, const char *job,
                         uid_t uid, struct text *why, struct event_reader **out);
/* None of its requests waits. NULL is fine. */
void event_reader_free(struct event_reader *reader);

/* Answers a read(2), now or later: at most `size` bytes, whole lines where these fit; 0 at the end;
 * EINTR at a signal. flags: of its open file. O_NONBLOCK gets EAGAIN where there is nothing yet.
 * Who opened with O_NOFOLLOW and doesn't poll walks through a tree (cp -r, grep -r) and was never
 * told to wait here: to them the file is empty, as it was at their open. */
void event_reader_read(struct event_reader *reader, fuse_req_t req, size_t size, int flags);
/* Answers a poll(2). Takes over the handle, which may be NULL. */
void event_reader_poll(struct event_reader *reader, fuse_req_t req, struct fuse_pollhandle *handle);

/* ---- what the readers, and the thread that looks for them, share ---- */

/* A read(2) that waits for its answer. */
struct waiter {
    fuse_req_t req;
    struct event_reader *reader;
    struct callers_entry request;
    size_t size;
    bool queued;
    bool interrupted; /* before it was queued */
    int error;
    struct text answer;
    struct waiter *next;
};

/* A process that has readers. Only the thread that finds takes it out of the list. */
struct source {
    struct feed *feed;
    struct tap *taps;
    struct seen *seen;  /* that thread's; NULL: nobody reads of it alone, or there was no memory */
    struct seen *fresh; /* takes the place of that at the next look; NULL: that stays */
    uid_t uid;          /* whose the process was when it got here */
    bool asking;        /* others are asked about it, by a thread of its own */
    uint64_t again_ns;  /* they gave no answer: not before that, by CLOCK_MONOTONIC */
    struct source *next;
};

/* How far one reader has come with one process. */
struct tap {
    struct event_reader *reader;
    struct source *source;
    struct feed_cursor at;
    double since; /* [s] since 1970: lines from before it are for others; 0: all are its */
    struct tap *next_of_source, *next_of_reader;
};

struct event_reader {
    struct events *events;
    uid_t uid; /* whose it is */
    enum feed_kind kind;
    struct tap *taps;  /* one; of one that reads of all processes, those that it may look at */
    struct tap *last;  /* which its lines were taken from; NULL: none of those */
    struct text lines; /* taken from there, and not read yet from `given` on */
    size_t given;
    struct waiter *waiters;       /* oldest first */
    struct fuse_pollhandle *poll; /* NULL: nobody polls */
    atomic_bool polled;           /* somebody did */

    /* of one that reads of all processes */
    bool all;
    char job[JOB_NAME_MAX]; /* of this one alone; "": of none in particular */
    uid_t job_uid;
    char host[HOST_NAME_MAX + 1];
    const struct access *access;
    struct access_caller caller; /* as it was when it was opened: no longer `lives` */
    double since;                /* [s] since 1970, when it was opened */
    uint64_t lost;             /* events of processes that it didn't get to while they were kept */
    uint64_t serial;           /* of the newest process that was decided upon */
    struct event_reader *next; /* among those */
};

struct events {
    struct registry *registry;
    pthread_mutex_t lock; /* guards what follows; what answers a request doesn't hold it */
    pthread_cond_t changed;
    struct source *first;
    struct event_reader *all; /* those that read of all processes */
    struct shares shares;     /* of the readers */
    struct shares asking;     /* of what others are asked at once, by whom that is about */
    bool running, finds, ending;
    bool happened;      /* an agent has said that there is something: also where nothing was ... */
    bool may_have_come; /* ... or in what is followed already */
    pthread_t thread, finder;
};

/* Whether somebody reads of it alone. With the lock. */
bool source_is_read_alone(const struct source *source);
/* Starts the threads, if they don't run. With the lock. -EAGAIN. */
int events_start(struct events *events);
/* Takes in what has happened. Where others have to be asked, who may not answer, that takes a
 * thread of its own, which answers the waiters: here it is only begun. With the lock. Whether there
 * was anything. */
bool source_look(struct events *events, struct source *source);

/* All the following with the lock, but for event_finish(). */

/* Queues, for event_finish(), the waiters of this source's readers that can be
 * answered; the rest waits on. */
void event_collect(struct source *source, struct waiter **done);
/* event_collect() of all that wait of one reader, with an error. */
void event_collect_failed(struct event_reader *reader, struct waiter **done, int error);
/* Leaves out, for readers that are new since the look before, the lines of what was before them. */
void event_skip_old(struct source *source);
/* Sends the answers. */
void event_finish(struct waiter *done);
/* Has a reader of all processes add those that came since, and drop those that ended and have been
 * read of. -ENOMEM. */
int event_reader_update(struct event_reader *reader, const struct process_list *list);
