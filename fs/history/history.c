#include "fs/history/history.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/access/access.h"
#include "fs/base/array.h"
#include "fs/base/worker.h"
#include "fs/events/feed.h"
#include "fs/format/event.h"
#include "fs/history/look.h"
#include "fs/history/stacks.h"
#include "fs/process/facts.h"
#include "fs/process/jobs.h"
#include "fs/sampler/profile.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#define ROUNDS_BETWEEN_TRIMS 3
#define LOOK_EVERY_NS 60000000000u /* at the threads of a process that doesn't run */
#define PROFILE_EVERY_NS 60000000000u
#define MISSED_MAX 4        /* rounds, until what a process has recorded that ended is given up */
#define CRASH_ROWS_MAX 5000 /* of the frames and variables of some crashes, each time */

static const struct {
    enum recorded table;
    uint64_t rows; /* each time; of more the last */
} recorded[HISTORY_RECORDED] = {
    [HISTORY_EXCEPTIONS] = {RECORDED_EXCEPTIONS, HISTORY_ROWS_MAX},
    [HISTORY_CRASH] = {RECORDED_CRASH, CRASH_ROWS_MAX},
};

/* How far a process has been followed. */
struct progress {
    bool started; /* that it was is there */
    double upto;  /* ts of the newest event, [s] */
    struct feed_cursor events;
    struct history_followed rings[HISTORY_RECORDED];
    uint64_t profiled; /* CLOCK_MONOTONIC, ns: samples before that are there */
};

/* One process that is followed. */
struct item {
    struct process *process; /* a reference */
    struct feed *feed;
    struct access_target access; /* the strictest that was seen; nns 0: not known */
    struct history_front front;
    char job[JOB_NAME_MAX];    /* of front; "": none */
    struct progress now, kept; /* with what is being appended, and without */
    struct history_sample sample;
    uint64_t looked; /* CLOCK_MONOTONIC, ns, when its threads were looked at last; 0: not yet */
    unsigned missed; /* rounds in a row in which what its rings have could not be had */
    bool listed, ended;
};

struct history {
    struct registry *registry;
    char *path;
    struct history_file *file;
    char host[HOST_NAME_MAX + 1];
    struct user_ns ns; /* the daemon's */
    struct item *items;
    size_t n, alloc;
    uint64_t rounds, interval;
    bool ends; /* it is the last time */
    pthread_t thread;
    bool running;

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    bool ending;
    double appended;   /* [s] since 1970, when that was done last; 0: not yet */
    uint64_t lost;     /* samples, ever */
    struct text error; /* why nothing is appended now; "": it is */
};

/* ---- which processes ---- */

static void item_deinit(struct item *item)
{
    feed_free(item->feed);
    process_unref(item->process);
}

static double since_of(const struct process *process) { return (double)process->start_time; }

/* Takes over the reference. */
static int add_item(struct history *history, struct process *process)
{
    struct item item = {
        .process = process,
        .listed = true,
        .front = {.host = history->host, .pid = process->pid, .rank = -1},
    };
    struct history_followed events = {.name = HISTORY_EVENTS, .since = since_of(process)};
    struct progress *now = &item.now;

    now->started = history_file_get_followed(history->file, &item.front, &events);
    now->upto = now->started ? events.upto : timespec_s(&process->started);
    for (unsigned i = 0; i < HISTORY_RECORDED; i++)
        now->rings[i].name = history_recorded_name((enum history_recorded)i);
    int r = history->n < HISTORY_PROCESSES_MAX
                ? ARRAY_GROW(history->items, history->alloc, history->n + 1)
                : -EMFILE;
    if (r == 0)
        r = feed_new(process, FEED_EVENTS, nextafter(now->upto, INFINITY), &item.feed);
    if (r < 0) {
        process_unref(process);
        return r;
    }
    feed_widen(item.feed, HISTORY_EVENTS_BYTES);
    item.kept = item.now;
    history->items[history->n++] = item;
    return 0;
}

static struct item *find_item(struct history *history, const struct process *process)
{
    for (size_t i = 0; i < history->n; i++)
        if (history->items[i].process == process)
            return &history->items[i];
    return NULL;
}

static int update_items(struct history *history)
{
    _cleanup_(process_list_deinit) struct process_list list = {0};

    int r = job_processes(history->registry, NULL, 0, NULL, NULL, &list);
    if (r < 0)
        return r;
    for (size_t i = 0; i < history->n; i++)
        history->items[i].listed = false;
    for (size_t i = 0; i < list.n; i++) {
        struct item *item = find_item(history, list.items[i]);
        if (item)
            item->listed = true;
        else
            (void)add_item(history, steal_pointer(list.items[i])); /* else the next time */
    }
    for (size_t i = 0; i < history->n; i++)
        if (!history->items[i].listed)
            registry_notice(history->registry, history->items[i].process->pid);
    return 0;
}

/* Drops the processes that have ended, once that is appended. */
static void drop_ended(struct history *history)
{
    size_t n = 0;

    for (size_t i = 0; i < history->n; i++) {
        struct item *item = &history->items[i];
        if (item->ended || (!item->listed && !process_alive(item->process)))
            item_deinit(item);
        else
            history->items[n++] = *item;
    }
    history->n = n;
}

/* ---- who may see its rows ---- */

static bool is_ordinary(const struct history *history, const struct access_target *t)
{
    return t->dumpable && !t->permitted && t->uid[0] == t->uid[1] && t->uid[0] == t->uid[2] &&
           t->gid[0] == t->gid[1] && t->gid[0] == t->gid[2] && t->nns &&
           t->ns[0].dev == history->ns.dev && t->ns[0].ino == history->ns.ino;
}

/* What the kernel's rule says of who may look at it (access/access.h), as one user and one group.
 */
static void read_owner(const struct history *history, struct item *item)
{
    struct access_target now;

    if (access_read_target(item->process->pid, &now) == 0) {
        if (item->access.nns)
            facts_merge_access(&item->access, &now);
        else
            item->access = now;
    }
    bool ordinary = is_ordinary(history, &item->access);
    item->front.uid = ordinary ? item->access.uid[0] : 0;
    item->front.gid = ordinary ? item->access.gid[0] : 0;
}

/* What it says that it is in a job, which may come later than its start. */
static void read_membership(struct item *item)
{
    const struct membership of = process_membership(item->process);

    item->front.rank = of.rank;
    snprintf(item->job, sizeof item->job, "%s", of.rank < 0 ? "" : of.job);
}

/* ---- what is appended of one process ---- */

static int add_lines(struct history *history, struct item *item, const struct text *lines)
{
    int r = 0;

    for (size_t at = 0, n; at < lines->size && r == 0; at += n + 1) {
        n = strcspn(lines->data + at, "\n");
        r = history_file_add_event(history->file, &item->front, lines->data + at, n);
    }
    return r;
}

static int append_events(struct history *history, struct item *item)
{
    _cleanup_(text_deinit) struct text lines = TEXT_INIT;
    double now = realtime_s();

    (void)feed_look(item->feed);
    struct feed_cursor before = item->now.events;
    feed_take(item->feed, &item->now.events, SIZE_MAX, "", &lines);
    if (lines.error)
        return lines.error;
    if (item->now.events.line != before.line)
        item->now.upto = now;
    return add_lines(history, item, &lines);
}

struct appending {
    struct history *history;
    struct item *item;
    enum history_recorded table;
    uint64_t lost;
};

static int append_row(void *arg, const struct ring_row *row)
{
    struct appending *a = arg;
    return history_file_add_row(a->history->file, a->table, &a->item->front, row);
}

static void count_lost(void *arg, uint64_t count) { ((struct appending *)arg)->lost += count; }

static struct ring_copy question(const struct item *item, enum history_recorded table)
{
    const struct history_followed *followed = &item->now.rings[table];

    return (struct ring_copy){.ask = {.table = recorded[table].table,
                                      .since = followed->since,
                                      .at = followed->at,
                                      .most = recorded[table].rows}};
}

/* Whether it is another ring than the one that was followed: then it is followed from where that
 * was left, or all of it. */
static bool adopt(struct history *history, struct item *item, enum history_recorded table,
                  struct ring_copy *copy)
{
    struct history_followed *followed = &item->now.rings[table];

    if (!copy->told.is_there || copy->told.since == followed->since)
        return false;
    followed->since = copy->told.since;
    followed->at = (struct ring_position){0};
    (void)history_file_get_followed(history->file, &item->front, followed);
    *copy = question(item, table);
    return true;
}

/* Appends what came in a ring since the last time. */
static int append_ring(struct history *history, struct item *item, enum history_recorded table,
                       const struct ring_copy *copy)
{
    struct history_followed *followed = &item->now.rings[table];
    struct appending appending = {history, item, table, 0};
    const struct ring_follower follower = {append_row, count_lost, &appending};
    struct ring_position before = followed->at;

    if (!copy->told.is_there || copy->told.since != followed->since)
        return 0;
    int r = ring_copy_pass(copy, &followed->at, &follower);
    if (r == 0 && appending.lost) {
        _cleanup_(text_deinit) struct text line = TEXT_INIT;
        event_text_lost(item->process->pid, appending.lost, &line);
        r = line.error ? line.error : add_lines(history, item, &line);
    }
    if (r == 0 && memcmp(&before, &followed->at, sizeof before)) {
        followed->upto = realtime_s();
        r = history_file_put_followed(history->file, &item->front, followed);
    }
    return r;
}

/* What can't be had now is asked for the next time. */
static int append_rings(struct history *history, struct item *item)
{
    struct recording *recording = process_recording(item->process);
    _cleanup_(text_deinit) struct text first = TEXT_INIT, answer = TEXT_INIT;
    struct ring_copy copies[HISTORY_RECORDED];
    bool any = false, again = false;
    int r = 0;

    for (unsigned i = 0; i < HISTORY_RECORDED; i++) {
        copies[i] = question(item, (enum history_recorded)i);
        any |= recording_has(recording, recorded[i].table);
    }
    if (!any)
        return 0;
    item->missed++;
    if (recording_copy(recording, copies, HISTORY_RECORDED, &first) < 0)
        return 0;
    for (unsigned i = 0; i < HISTORY_RECORDED; i++)
        again |= adopt(history, item, (enum history_recorded)i, &copies[i]);
    if (again && recording_copy(recording, copies, HISTORY_RECORDED, &answer) < 0)
        return 0;
    item->missed = 0;
    for (unsigned i = 0; i < HISTORY_RECORDED && r == 0; i++)
        r = append_ring(history, item, (enum history_recorded)i, &copies[i]);
    return r;
}

/* What was sampled in whole slices; once a minute while more comes. */
static int append_profile(struct history *history, struct item *item)
{
    /* samples come a moment late */
    uint64_t to = monotonic_ns() / STORE_SLICE * STORE_SLICE - STORE_SLICE;
    uint64_t from = item->now.profiled;
    struct profile *profile = item->process->profile;
    struct store_stats stats;

    if (!profile_any(profile))
        return 0;
    bool due = item->ended || history->ends || to - from >= PROFILE_EVERY_NS;
    struct store *store = due ? profile_store(profile) : NULL;
    if (!store)
        return 0;
    store_stats(store, &stats);
    if (item->ended || history->ends)
        to += 2 * STORE_SLICE;
    item->now.profiled = to;
    from = from > stats.first ? from : stats.first / STORE_SLICE * STORE_SLICE;
    int r = stats.last >= from && from < to
                ? history_add_stacks(history->file, &item->front, store, from, to)
                : 0;
    store_unref(store);
    return r;
}

static int append_start(struct history *history, struct item *item, const struct text *command)
{
    _cleanup_(text_deinit) struct text line = TEXT_INIT;

    text_printf(&line, "{\"ts\": %.6f, \"kind\": \"start\", \"pid\": %d, \"command\": ",
                timespec_s(&item->process->started), item->process->pid);
    text_add_json(&line, command->size ? command->data : "", command->size);
    text_puts(&line, "}");
    item->now.started = true;
    return line.error ? line.error : add_lines(history, item, &line);
}

/* How it is now: nothing, if it can't be read. */
static int append_sample(struct history *history, struct item *item)
{
    bool due = !item->looked || monotonic_ns() - item->looked >= LOOK_EVERY_NS;
    struct history_look look = {.before = &item->sample,
                                .again = due,
                                .with_command = !item->now.started};
    int r = 0;

    if (history_look(item->process, &look) == 0) {
        double now = realtime_s();
        if (look.looked)
            item->looked = monotonic_ns();
        item->sample = look.sample;
        if (!item->now.started)
            r = append_start(history, item, &look.command);
        if (r == 0)
            r = history_file_add_sample(history->file, &item->front, now, &item->sample);
    }
    text_deinit(&look.command);
    return r;
}

static int append(struct history *history, struct item *item)
{
    double upto = item->now.upto;
    bool started = item->now.started;

    /* asked first: then all that there will be is there */
    bool ended = process_ended(item->process);
    if (!ended) {
        read_owner(history, item);
        read_membership(item);
    }
    item->front.job = *item->job ? item->job : NULL;
    int r = item->listed && !ended ? append_sample(history, item) : 0;
    if (r == 0)
        r = append_events(history, item);
    if (r == 0)
        r = append_rings(history, item);
    item->ended = ended && feed_ended(item->feed) && (!item->missed || item->missed >= MISSED_MAX);
    if (r == 0)
        r = append_profile(history, item);
    if (r == 0 && item->ended)
        return history_file_drop_followed(history->file, &item->front);
    if (r < 0 || (upto == item->now.upto && started == item->now.started))
        return r;
    const struct history_followed events = {
        .name = HISTORY_EVENTS,
        .since = since_of(item->process),
        .upto = item->now.upto,
    };
    return history_file_put_followed(history->file, &item->front, &events);
}

/* ---- one time ---- */

/* Notes that what was taken is appended; if it isn't, it is taken again the next time. */
static void settle(struct history *history, bool appended)
{
    for (size_t i = 0; i < history->n; i++) {
        struct item *item = &history->items[i];
        if (appended) {
            item->kept = item->now;
            feed_forget(item->feed, item->now.events.line);
        } else {
            item->now = item->kept;
            item->ended = false;
        }
    }
}

/* Says once in the log that nothing is appended, or that it goes on. */
static void note(struct history *history, int error, size_t samples)
{
    const char *words = error == -ENOMEM ? "out of memory" : history_file_why(history->file);

    _guard_mutex_(&history->lock);
    if (error == 0) {
        if (history->error.size)
            syslog(LOG_NOTICE, "history %s: goes on", history->path);
        text_clear(&history->error);
        history->appended = realtime_s();
        return;
    }
    history->lost += samples;
    if (!history->error.size || strcmp(history->error.data, words))
        syslog(LOG_WARNING, "history %s: %s", history->path, words);
    text_clear(&history->error);
    text_puts(&history->error, words);
}

static void look_and_append(struct history *history)
{
    history->rounds++;
    if (update_items(history) < 0)
        return; /* descriptors or memory are scarce: the next time */
    int r = history_file_begin(history->file);
    for (size_t i = 0; i < history->n && r == 0; i++)
        r = append(history, &history->items[i]);
    int committed = history_file_commit(history->file);
    r = r < 0 ? r : committed;
    settle(history, r == 0);
    if (r == 0)
        drop_ended(history);
    if (r == 0 ? history->rounds % ROUNDS_BETWEEN_TRIMS == 0 : r == -ENOSPC) {
        int trimmed = history_file_trim(history->file, realtime_s());
        r = r < 0 ? r : trimmed;
    }
    note(history, r, history->n);
}

/* False: it is to end. */
static bool sleep_until(struct history *history, uint64_t when)
{
    _guard_mutex_(&history->lock);
    while (!history->ending && monotonic_ns() < when) {
        struct timespec t = timespec_of(when);
        pthread_cond_timedwait(&history->changed, &history->lock, &t);
    }
    return !history->ending;
}

static void *history_main(void *arg)
{
    struct history *history = arg;
    uint64_t next;

    do {
        next = monotonic_ns() + history->interval;
        look_and_append(history);
    } while (sleep_until(history, next));
    history->ends = true;
    look_and_append(history);
    return NULL;
}

/* ---- its life ---- */

int history_find(const char *path, struct text *why, char **out)
{
    _cleanup_free_ char *directory = strdup(path);
    char *slash = directory ? strrchr(directory, '/') : NULL;
    const char *name = slash ? path + (slash - directory) + 1 : path;

    if (slash)
        slash[slash == directory] = 0;
    _cleanup_free_ char *real = directory ? realpath(slash ? directory : ".", NULL) : NULL;
    if (!real) {
        text_printf(why, "history=%s: there is no such directory; make it first", path);
        return -ENOENT;
    }
    if (!*name || asprintf(out, "%s/%s", strcmp(real, "/") ? real : "", name) < 0) {
        text_printf(why, "history=%s: it names no file", path);
        return -EINVAL;
    }
    return 0;
}

int history_new(struct registry *registry, const char *path, const struct history_limits *limits,
                struct text *why, struct history **out)
{
    struct access_target self;
    pthread_condattr_t attr;
    struct history *history = calloc(1, sizeof *history);

    if (!history)
        return -ENOMEM;
    pthread_mutex_init(&history->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&history->changed, &attr);
    pthread_condattr_destroy(&attr);
    history->registry = registry;
    history->interval = limits->interval;
    gethostname(history->host, sizeof history->host - 1);
    history->path = strdup(path);
    int r = history->path ? access_read_target(getpid(), &self) : -ENOMEM;
    if (r == 0 && self.nns)
        history->ns = self.ns[0];
    if (r == 0)
        r = history_file_open(history->path, limits, why, &history->file);
    if (r < 0) {
        history_free(history);
        return r;
    }
    *out = history;
    return 0;
}

int history_start(struct history *history)
{
    openlog("probefs", LOG_PID | LOG_PERROR, LOG_DAEMON);
    int r = worker_start(history_main, history, "probefs-history", &history->thread);
    history->running = r == 0;
    return r;
}

bool history_end(struct history *history, uint64_t timeout_ns)
{
    const struct timespec until = timespec_of(monotonic_ns() + timeout_ns);

    if (!history || !history->running)
        return true;
    pthread_mutex_lock(&history->lock);
    history->ending = true;
    pthread_cond_signal(&history->changed);
    pthread_mutex_unlock(&history->lock);
    history->running = pthread_clockjoin_np(history->thread, NULL, CLOCK_MONOTONIC, &until) != 0;
    return !history->running;
}

void history_free(struct history *history)
{
    if (!history)
        return;
    for (size_t i = 0; i < history->n; i++)
        item_deinit(&history->items[i]);
    free(history->items);
    history_file_close(history->file);
    pthread_cond_destroy(&history->changed);
    pthread_mutex_destroy(&history->lock);
    text_deinit(&history->error);
    free(history->path);
    free(history);
}

const char *history_path(const struct history *history) { return history->path; }

void history_status(struct history *history, struct text *out)
{
    _guard_mutex_(&history->lock);
    text_puts(out, "File: ");
    text_add_escaped(out, history->path, strlen(history->path));
    text_printf(out, "\nSize: %lu\nAppended: ", (unsigned long)history_file_size(history->file));
    if (history->appended != 0)
        text_add_time(out, (time_t)history->appended);
    else
        text_puts(out, "not yet");
    text_printf(out, "\nSamples lost: %lu\n", (unsigned long)history->lost);
    if (history->error.size)
        text_printf(out, "Error: %s\n", history->error.data);
}
