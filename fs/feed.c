#include "fs/feed.h"

#include "agent/proto.h"
#include "fs/cleanup.h"
#include "fs/clock.h"
#include "fs/event_text.h"
#include "schema/schema.h"

#include <errno.h>
#include <string.h>

struct line {
    uint64_t before; /* events that were told before it */
    uint64_t count;  /* events that it tells of: more than 1 were lost */
    size_t size;
    char text[];
};

/* How far one ring has been followed. */
struct followed {
    double since;            /* ring_reader_since() of it; 0: none yet */
    struct ring_position at;
};

/* Threads that are held, by the numbers of their rows in hits. */
struct stops {
    uint64_t rows[PROBE_STOPS_MAX]; /* oldest first */
    size_t n;
};

/* What the rows that are being followed are: from before the feed began? */
enum age { AGE_NEW, AGE_OLD, AGE_BY_TIME };

struct feed {
    struct process *process;
    struct line *lines[FEED_LINES_MAX]; /* by number, modulo */
    uint64_t first, next;               /* numbers of the oldest one, and of the one to come */
    uint64_t events;                    /* that were told */
    size_t bytes, bytes_max;
    struct text text;                   /* of the line that is being made */
    bool attached, ended;
    double began;                       /* [s] since 1970; 0: not yet */
    struct followed events_ring, hits_ring, crash_ring;
    enum age age;
    struct stops stops;
};

static void forget_oldest(struct feed *feed)
{
    struct line **line = &feed->lines[feed->first++ % FEED_LINES_MAX];

    feed->bytes -= (*line)->size;
    free(*line);
    *line = NULL;
}

/* Makes a line of feed->text. What there is no memory for is lost, and said by the next line. */
static void add_line(struct feed *feed, uint64_t count)
{
    size_t size = feed->text.size;
    struct line *line = feed->text.error ? NULL : malloc(sizeof *line + size);

    if (line) {
        *line = (struct line){.before = feed->events, .count = count, .size = size};
        memcpy(line->text, feed->text.data, size);
        while (feed->next - feed->first >= FEED_LINES_MAX ||
               (feed->next > feed->first && feed->bytes + size > feed->bytes_max))
            forget_oldest(feed);
        feed->lines[feed->next++ % FEED_LINES_MAX] = line;
        feed->bytes += size;
    }
    feed->events += count;
    text_clear(&feed->text);
}

static void on_lost(void *arg, uint64_t count)
{
    struct feed *feed = arg;

    event_text_lost(feed->process->pid, count, &feed->text);
    add_line(feed, count);
}

/* Whether it was written before anybody wanted to know. */
static bool is_old(const struct feed *feed, const struct ring_row *row, unsigned ts)
{
    return feed->age == AGE_OLD || (feed->age == AGE_BY_TIME && ring_real(row, ts) < feed->began);
}

static int on_event(void *arg, const struct ring_row *row)
{
    struct feed *feed = arg;

    if (is_old(feed, row, EVENTS_TS))
        return 0;
    event_text_row(feed->process->pid, row, &feed->text);
    add_line(feed, 1);
    return 0;
}

static bool is_resumed(const struct ring_row *row)
{
    double resumed = ring_real(row, HITS_RESUMED);
    return resumed == resumed; /* NULL is NaN */
}

static void add_stop(struct stops *stops, uint64_t row)
{
    if (stops->n == PROBE_STOPS_MAX)
        memmove(stops->rows, stops->rows + 1, --stops->n * sizeof *stops->rows);
    stops->rows[stops->n++] = row;
}

static void add_continue(struct feed *feed, const struct ring_row *row)
{
    event_text_continue(feed->process->pid, row, &feed->text);
    add_line(feed, 1);
}

/* A thread that is held already when the feed begins goes on later. */
static int on_hit(void *arg, const struct ring_row *row)
{
    struct feed *feed = arg;
    int64_t id, stopped;
    bool old = is_old(feed, row, HITS_TS), stops = ring_integer(row, HITS_STOPPED, &stopped) && stopped == 1;

    if (!old && ring_integer(row, HITS_ID, &id)) {
        event_text_hit(feed->process->pid, row, &feed->text);
        add_line(feed, 1);
    }
    if (!old && stops) {
        event_text_stop(feed->process->pid, row, &feed->text);
        add_line(feed, 1);
    }
    if (stops && !is_resumed(row))
        add_stop(&feed->stops, feed->hits_ring.at.row);
    else if (!old && stops)
        add_continue(feed, row);
    return 0;
}

static int on_stopped(void *arg, const struct ring_row *row)
{
    struct feed *feed = arg;

    if (!is_resumed(row))
        return 0;
    add_continue(feed, row);
    return 1;
}

/* Which of the held threads have gone on. */
static void look_at_stops(struct feed *feed, struct ring_reader *ring)
{
    struct stops *stops = &feed->stops;
    size_t kept = 0;

    for (size_t i = 0; i < stops->n; i++) {
        int r = ring_reader_row(ring, stops->rows[i], on_stopped, feed);
        if (r == 0 || r == -EAGAIN || r == -ENOMEM)
            stops->rows[kept++] = stops->rows[i];
    }
    stops->n = kept;
}

static void ignore_lost(void *arg, uint64_t count) {}

/* Of a ring that was made since the feed began all is new; of one that was only found since, what was written
 * before isn't. */
static void follow(struct feed *feed, struct ring_reader *ring, struct followed *followed,
                   int (*row)(void *arg, const struct ring_row *row))
{
    struct ring_follower follower = {row, on_lost, feed};

    feed->age = AGE_NEW;
    if (followed->since != ring_reader_since(ring)) {
        followed->since = ring_reader_since(ring);
        followed->at = (struct ring_position){0};
        feed->age = feed->began == 0 ? AGE_OLD : followed->since < feed->began ? AGE_BY_TIME : AGE_NEW;
        if (feed->age != AGE_NEW)
            follower.lost = ignore_lost;
    }
    (void)ring_reader_follow(ring, &followed->at, &follower);
}

static void follow_events(struct feed *feed)
{
    struct ring_reader *ring = recording_ring(process_recording(feed->process), RECORDED_EVENTS);

    if (ring)
        follow(feed, ring, &feed->events_ring, on_event);
    ring_reader_unref(ring);
}

static void follow_hits(struct feed *feed)
{
    struct ring_reader *ring = recording_ring(process_recording(feed->process), RECORDED_HITS);

    if (!ring)
        return;
    if (feed->hits_ring.since != ring_reader_since(ring))
        feed->stops.n = 0; /* the rows of another ring have other numbers */
    look_at_stops(feed, ring);
    follow(feed, ring, &feed->hits_ring, on_hit);
    ring_reader_unref(ring);
}

static int on_crash(void *arg, const struct ring_row *row)
{
    struct feed *feed = arg;

    if (!is_old(feed, row, CRASH_TS) && event_text_crash(feed->process->pid, row, &feed->text))
        add_line(feed, 1);
    return 0;
}

static void follow_crashes(struct feed *feed)
{
    struct ring_reader *ring = recording_ring(process_recording(feed->process), RECORDED_CRASH);

    if (ring)
        follow(feed, ring, &feed->crash_ring, on_crash);
    ring_reader_unref(ring);
}

static void note_agent(struct feed *feed, bool attached)
{
    if (feed->attached == attached)
        return;
    feed->attached = attached;
    event_text_agent(feed->process->pid, attached, &feed->text);
    add_line(feed, 1);
}

bool feed_look(struct feed *feed)
{
    uint64_t before = feed->next;

    if (feed->ended)
        return false;
    bool ended = process_ended(feed->process); /* asked first: then all that there will be is there */
    bool attached = recording_attached(process_recording(feed->process));
    if (attached && !ended)
        note_agent(feed, true);
    follow_events(feed);
    follow_hits(feed);
    follow_crashes(feed);
    if (!attached && !ended)
        note_agent(feed, false);
    if (ended) {
        event_text_end(feed->process->pid, &feed->process->ending, &feed->text);
        add_line(feed, 1);
        feed->ended = true;
    }
    return feed->next != before || ended;
}

static void begin_now(struct feed *feed)
{
    struct ring_reader *ring = recording_ring(process_recording(feed->process), RECORDED_EVENTS);

    if (ring) {
        feed->events_ring.since = ring_reader_since(ring);
        ring_reader_end(ring, &feed->events_ring.at);
        ring_reader_unref(ring);
    }
    follow_hits(feed); /* for the threads that are held */
    follow_crashes(feed);
    feed->began = realtime_s();
    feed->attached = recording_attached(process_recording(feed->process));
}

int feed_new(struct process *process, double since, struct feed **out)
{
    struct feed *feed = calloc(1, sizeof *feed);

    if (!feed)
        return -ENOMEM;
    feed->process = process_ref(process);
    feed->began = since;
    if (since == 0)
        begin_now(feed);
    *out = feed;
    return 0;
}

void feed_widen(struct feed *feed, size_t bytes)
{
    feed->bytes_max = feed->bytes_max > bytes ? feed->bytes_max : bytes;
}

void feed_free(struct feed *feed)
{
    if (!feed)
        return;
    while (feed->first < feed->next)
        forget_oldest(feed);
    text_deinit(&feed->text);
    process_unref(feed->process);
    free(feed);
}

struct process *feed_process(const struct feed *feed) { return feed->process; }

struct feed_cursor feed_end(const struct feed *feed)
{
    return (struct feed_cursor){feed->next, feed->events};
}

bool feed_readable(const struct feed *feed, const struct feed_cursor *at)
{
    return at->line < feed->next || feed->ended;
}

void feed_forget(struct feed *feed, uint64_t line)
{
    while (feed->first < feed->next && feed->first < line)
        forget_oldest(feed);
}

/* A line with fields in front. */
static void add_with(const char *front, const char *line, size_t size, struct text *out)
{
    text_putc(out, '{');
    text_puts(out, front);
    text_add(out, line + 1, size - 1);
}

void feed_take(struct feed *feed, struct feed_cursor *at, size_t size, const char *front, struct text *out)
{
    size_t more = strlen(front);

    if (at->line < feed->first)
        at->line = feed->first;
    for (; at->line < feed->next; at->line++) {
        const struct line *line = feed->lines[at->line % FEED_LINES_MAX];
        if (out->size > 0 && out->size + more + line->size > size)
            return;
        if (line->before > at->events) {
            event_text_lost(feed->process->pid, line->before - at->events, &feed->text);
            if (!feed->text.error)
                add_with(front, feed->text.data, feed->text.size, out);
            text_clear(&feed->text);
            at->events = line->before;
            if (out->size + more + line->size > size)
                return;
        }
        add_with(front, line->text, line->size, out);
        at->events += line->count;
    }
}
