#include "fs/feed.h"

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

struct feed {
    struct process *process;
    struct line *lines[FEED_LINES_MAX]; /* by number, modulo */
    uint64_t first, next;               /* numbers of the oldest one, and of the one to come */
    uint64_t events;                    /* that were told */
    size_t bytes;
    struct text text;                   /* of the line that is being made */
    bool attached, ended;
    double began;                       /* [s] since 1970 */
    double since;                       /* ring_reader_since() of the ring that is followed; 0: none yet */
    struct ring_position at;            /* how far */
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
               (feed->next > feed->first && feed->bytes + size > FEED_BYTES_MAX))
            forget_oldest(feed);
        feed->lines[feed->next++ % FEED_LINES_MAX] = line;
        feed->bytes += size;
    }
    feed->events += count;
    text_clear(&feed->text);
}

static int on_row(void *arg, const struct ring_row *row)
{
    struct feed *feed = arg;

    event_text_row(feed->process->pid, row, &feed->text);
    add_line(feed, 1);
    return 0;
}

static void on_lost(void *arg, uint64_t count)
{
    struct feed *feed = arg;

    event_text_lost(feed->process->pid, count, &feed->text);
    add_line(feed, count);
}

/* Of a ring that was made since the feed began all is new; of one that was only found since, what was written
 * before isn't. */
static int on_first_row(void *arg, const struct ring_row *row)
{
    struct feed *feed = arg;
    return ring_real(row, EVENTS_TS) < feed->began ? 0 : on_row(feed, row);
}

static void ignore_lost(void *arg, uint64_t count) {}

static void follow(struct feed *feed)
{
    struct ring_reader *ring = recording_ring(process_recording(feed->process), RECORDED_EVENTS);
    struct ring_follower follower = {on_row, on_lost, feed};

    if (!ring)
        return;
    if (feed->since != ring_reader_since(ring)) {
        feed->since = ring_reader_since(ring);
        feed->at = (struct ring_position){0};
        follower.row = on_first_row;
        if (feed->since < feed->began)
            follower.lost = ignore_lost;
    }
    (void)ring_reader_follow(ring, &feed->at, &follower);
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
    follow(feed);
    if (!attached && !ended)
        note_agent(feed, false);
    if (ended) {
        event_text_end(feed->process->pid, &feed->process->ending, &feed->text);
        add_line(feed, 1);
        feed->ended = true;
    }
    return feed->next != before || ended;
}

int feed_new(struct process *process, struct feed **out)
{
    struct feed *feed = calloc(1, sizeof *feed);

    if (!feed)
        return -ENOMEM;
    feed->process = process_ref(process);
    struct ring_reader *ring = recording_ring(process_recording(process), RECORDED_EVENTS);
    if (ring) {
        feed->since = ring_reader_since(ring);
        ring_reader_end(ring, &feed->at);
        ring_reader_unref(ring);
    }
    feed->began = realtime_s();
    feed->attached = recording_attached(process_recording(process));
    *out = feed;
    return 0;
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

void feed_take(struct feed *feed, struct feed_cursor *at, size_t size, struct text *out)
{
    if (at->line < feed->first)
        at->line = feed->first;
    for (; at->line < feed->next; at->line++) {
        const struct line *line = feed->lines[at->line % FEED_LINES_MAX];
        if (out->size > 0 && out->size + line->size > size)
            return;
        if (line->before > at->events) {
            event_text_lost(feed->process->pid, line->before - at->events, out);
            at->events = line->before;
            if (out->size + line->size > size)
                return;
        }
        text_add(out, line->text, line->size);
        at->events += line->count;
    }
}
