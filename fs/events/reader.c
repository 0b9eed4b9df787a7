#include "fs/events/events.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

/* Lines of a process that are kept for readers of all: there may be many
 * processes, and a slow reader. */
#define ALL_BYTES_MAX (64u << 10)
/* Processes that have ended and that a reader of all hasn't read to their end. */
#define ENDED_MAX 256

/* ---- taps; with the lock ---- */

/* Root's, if it has ended. */
static uid_t owner_of(pid_t pid)
{
    struct stat of_process;
    char path[32];

    snprintf(path, sizeof path, "/proc/%d", (int)pid);
    return stat(path, &of_process) == 0 ? of_process.st_uid : 0;
}

/* The thread frees a source that gets no reader. *found: it was there. */
static int source_for(struct events *events, struct process *process, enum feed_kind kind,
                      double since, size_t bytes, struct source **out, bool *found)
{
    struct source *source = events->first;

    while (source && (feed_process(source->feed) != process || feed_kind(source->feed) != kind))
        source = source->next;
    *found = source;
    if (!source) {
        source = calloc(1, sizeof *source);
        int r = source ? feed_new(process, kind, since, &source->feed) : -ENOMEM;
        if (r < 0) {
            free(source);
            return r;
        }
        source->uid = owner_of(process->pid);
        source->next = events->first;
        events->first = source;
    }
    feed_widen(source->feed, bytes);
    *out = source;
    return 0;
}

/* since: of a process that wasn't there before: from when on what happens in it is wanted; 0: from
 * now on. seen: as it is, for one that is read alone; it may be taken over. NULL: nothing is told
 * of that. */
static int tap_new(struct event_reader *reader, struct process *process, double since,
                   struct seen **seen, struct waiter **done)
{
    struct source *source;
    bool found;
    struct tap *tap = calloc(1, sizeof *tap);
    int r = tap ? source_for(reader->events, process, reader->kind, since,
                             reader->all ? ALL_BYTES_MAX : FEED_BYTES_MAX, &source, &found)
                : -ENOMEM;

    if (r < 0) {
        free(tap);
        return r;
    }
    if (since == 0) {
        source_look(reader->events, source); /* what was before is for others */
        event_collect(source, done);
    }
    if (seen && *seen && !source_is_read_alone(source)) {
        seen_free(source->fresh);
        source->fresh = steal_pointer(*seen);
    }
    *tap = (struct tap){
        .reader = reader,
        .source = source,
        .at = feed_end(source->feed),
        .since = found && since == 0 && feed_is_asked_for(source->feed) ? realtime_s() : 0,
        .next_of_source = source->taps,
        .next_of_reader = reader->taps,
    };
    source->taps = tap;
    reader->taps = tap;
    return 0;
}

/* Takes it out of its source's list. */
static void tap_free(struct tap *tap)
{
    struct tap **at = &tap->source->taps;

    while (*at != tap)
        at = &(*at)->next_of_source;
    *at = tap->next_of_source;
    free(tap);
}

/* ---- of all processes; with the lock ---- */

static bool has_tap(const struct event_reader *reader, const struct process *process)
{
    const struct tap *tap = reader->taps;

    while (tap && feed_process(tap->source->feed) != process)
        tap = tap->next_of_reader;
    return tap;
}

/* Adds the processes of one job: a process may say only after its start what it is. */
static int add_members(struct event_reader *reader, const struct process_list *list, double since,
                       struct waiter **done)
{
    int r = 0;

    for (size_t i = 0; i < list->n && r == 0; i++) {
        struct process *process = list->items[i];
        if (job_has(reader->job, reader->job_uid, process) && !has_tap(reader, process) &&
            access_look(reader->access, &reader->caller, process->pid) == 0)
            r = tap_new(reader, process, since, NULL, done);
    }
    return r;
}

/* Processes have rising numbers, so each is decided upon once: one that may not be looked at when
 * it is seen first isn't later, unless it executes another program. */
static int add_new(struct event_reader *reader, const struct process_list *list, double since,
                   struct waiter **done)
{
    uint64_t newest = reader->serial;
    int r = 0;

    if (*reader->job)
        return add_members(reader, list, since, done);
    for (size_t i = 0; i < list->n && r == 0; i++) {
        struct process *process = list->items[i];
        if (process->serial <= reader->serial)
            continue;
        newest = process->serial > newest ? process->serial : newest;
        if (access_look(reader->access, &reader->caller, process->pid) == 0)
            r = tap_new(reader, process, since, NULL, done);
    }
    reader->serial = newest;
    return r;
}

/* Drops the processes that have ended and been read to their end; of the others that ended the
 * newest are kept, which are first. */
static void drop_ended(struct event_reader *reader)
{
    unsigned kept = 0;

    for (struct tap **at = &reader->taps; *at;) {
        struct tap *tap = *at;
        struct feed_cursor end = feed_end(tap->source->feed);
        bool ended = feed_readable(tap->source->feed, &end), unread = tap->at.line < end.line;
        if (!ended || (unread && ++kept <= ENDED_MAX)) {
            at = &tap->next_of_reader;
            continue;
        }
        reader->lost += end.events - tap->at.events;
        *at = tap->next_of_reader;
        reader->last = reader->last == tap ? NULL : reader->last;
        tap_free(tap);
    }
}

int event_reader_update(struct event_reader *reader, const struct process_list *list)
{
    struct waiter *done = NULL; /* stays so: nothing of what there was is looked at */

    drop_ended(reader);
    return add_new(reader, list, reader->since, &done);
}

/* ---- their life ---- */

/* Enters a reader, whose events are those from now on. With the lock. */
static int enter(struct event_reader *reader, struct text *why)
{
    struct events *events = reader->events;

    if (events->ending)
        return -ENODEV;
    int r = shares_take(&events->shares, reader->uid);
    if (r == -EAGAIN)
        text_printf(why,
                    "events are read %u times already, or all but the %u times that root can: "
                    "close some",
                    EVENT_READERS_MAX, EVENT_READERS_KEPT);
    else if (r == -EDQUOT)
        text_printf(why, "you read events %u times already: close some", EVENT_READERS_EACH);
    if (r < 0)
        return r == -ENOMEM ? r : -ENFILE;
    r = events_start(events);
    if (r < 0)
        shares_give(&events->shares, reader->uid);
    return r;
}

static void leave(struct event_reader *reader)
{
    shares_give(&reader->events->shares, reader->uid);
    for (struct tap *tap; (tap = reader->taps);) {
        reader->taps = tap->next_of_reader;
        tap_free(tap);
    }
}

/* Opens a reader of one process, or of those in the list. seen: as of tap_new(). */
static int reader_open(struct event_reader *reader, struct process *process, struct seen **seen,
                       const struct process_list *list, struct text *why)
{
    struct events *events = reader->events;
    struct waiter *done = NULL;

    pthread_mutex_lock(&events->lock);
    int r = enter(reader, why);
    if (r == 0) {
        r = reader->all ? add_new(reader, list, 0, &done)
                        : tap_new(reader, process, 0, seen, &done);
        if (r < 0)
            leave(reader);
    }
    if (r == 0 && reader->all) {
        reader->caller.lives = false; /* who opens it may end, and its number be another's */
        reader->next = events->all;
        events->all = reader;
    }
    if (r == 0)
        pthread_cond_broadcast(&events->changed);
    pthread_mutex_unlock(&events->lock);
    event_finish(done);
    return r;
}

static struct event_reader *reader_new(struct events *events, enum feed_kind kind, uid_t uid)
{
    struct event_reader *reader = calloc(1, sizeof *reader);

    if (reader) {
        reader->events = events;
        reader->uid = uid;
        reader->kind = kind;
    }
    return reader;
}

int event_reader_new(struct events *events, struct process *process, enum feed_kind kind, uid_t uid,
                     struct text *why, struct event_reader **out)
{
    _cleanup_free_ struct event_reader *reader = reader_new(events, kind, uid);

    struct seen *seen = kind == FEED_EVENTS ? seen_new(process) : NULL;
    int r = reader ? reader_open(reader, process, &seen, NULL, why) : -ENOMEM;
    seen_free(seen);
    if (r == 0)
        *out = steal_pointer(reader);
    return r;
}

/* Reads the name of the host, as it may stand in JSON. */
static void read_host(char host[HOST_NAME_MAX + 1])
{
    host[HOST_NAME_MAX] = 0;
    if (gethostname(host, HOST_NAME_MAX) < 0)
        host[0] = 0;
    for (char *p = host; *p; p++)
        if (*p <= ' ' || *p == '"' || *p == '\\' || *p == 0x7f)
            *p = '?';
}

int event_reader_new_all(struct events *events, const struct access *access,
                         const struct access_caller *caller, enum feed_kind kind, const char *job,
                         uid_t uid, struct text *why, struct event_reader **out)
{
    _cleanup_(process_list_deinit) struct process_list list = {0};
    _cleanup_free_ struct event_reader *reader = reader_new(events, kind, caller->fsuid);

    if (!reader)
        return -ENOMEM;
    reader->all = true;
    reader->access = access;
    reader->caller = *caller;
    reader->since = realtime_s();
    read_host(reader->host);
    if (job)
        snprintf(reader->job, sizeof reader->job, "%s", job);
    reader->job_uid = uid;
    int r = job_processes(events->registry, NULL, 0, NULL, NULL, &list);
    if (r == 0)
        r = reader_open(reader, NULL, NULL, &list, why);
    if (r == 0)
        *out = steal_pointer(reader);
    return r;
}

void event_reader_free(struct event_reader *reader)
{
    if (!reader)
        return;
    {
        _guard_mutex_(&reader->events->lock);
        struct event_reader **at = &reader->events->all;
        while (*at && *at != reader)
            at = &(*at)->next;
        if (*at)
            *at = reader->next;
        leave(reader);
    }
    if (reader->poll)
        fuse_pollhandle_destroy(reader->poll);
    text_deinit(&reader->lines);
    free(reader);
}
