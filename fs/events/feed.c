#include "fs/events/feed.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/events/live.h"
#include "fs/format/event.h"
#include "fs/proc/procfs.h"
#include "schema/schema.h"

#include <errno.h>
#include <string.h>

struct line {
    uint64_t before; /* events that were told before it */
    uint64_t count;  /* events that it tells of: more than 1 were lost */
    double ts;       /* by which those that are seen at once are ordered */
    size_t size;
    char text[];
};

/* How far one ring has been followed. */
struct followed {
    double since; /* ring_reader_since() of it; 0: none yet */
    struct ring_position at;
    struct ring_mark begin; /* where it was as the feed began; zero: it wasn't there */
    struct ring_mark seen;  /* where it was as it was copied last */
    bool by_time;           /* of its rows those from before the feed began are old */
};

#define FAILED_MAX 8 /* looks, until what a process has recorded that ended is given up */
#define SECOND UINT64_C(1000000000)
#define SETTLED_NS 300000000u /* until all of a second's samples have been read */
#define SECONDS_MAX 10u       /* blocks that are made at a time */

struct feed {
    struct process *process;
    enum feed_kind kind;
    uint64_t second;                    /* of CLOCK_MONOTONIC: of FEED_LIVE the next one */
    struct line *lines[FEED_LINES_MAX]; /* by number, modulo */
    uint64_t first, next;               /* numbers of the oldest one, and of the one to come */
    uint64_t events;                    /* that were told */
    size_t bytes, bytes_max;
    struct text text; /* of the line that is being made */
    bool attached, ended;
    double began; /* [s] since 1970 */
    struct followed followed[FEED_RINGS];
    bool by_time;    /* of the ring that is being followed */
    unsigned failed; /* looks in a row that got no answer, once its process has ended */
    double ts;       /* of the line that is being made; 0: now */
    double newest;   /* of the rows of hits that were followed last; 0: there were none */
    double changed;  /* of the newest row of breakpoints that was told: others come again */
    double until;    /* rows of events that are newer wait for the next look; 0: none do */
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
        *line = (struct line){.before = feed->events, .count = count, .ts = feed->ts, .size = size};
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
    return feed->by_time && ring_real(row, ts) < feed->began;
}

static int on_event(void *arg, const struct ring_row *row)
{
    struct feed *feed = arg;

    if (is_old(feed, row, EVENTS_TS))
        return 0;
    feed->ts = ring_real(row, EVENTS_TS);
    if (feed->until > 0 && !(feed->ts <= feed->until))
        return 1;
    event_text_row(feed->process->pid, row, &feed->text);
    add_line(feed, 1);
    return 0;
}

static int on_hit(void *arg, const struct ring_row *row)
{
    struct feed *feed = arg;
    int64_t number, stopped;
    uint32_t size;
    bool cut;

    if (is_old(feed, row, HITS_TS))
        return 0;
    feed->ts = ring_real(row, HITS_TS);
    feed->newest = feed->ts > feed->newest ? feed->ts : feed->newest;
    /* without a number it is the condition of a `stop` that raised */
    if (ring_integer(row, HITS_HIT, &number) || ring_text(row, HITS_ERROR, &size, &cut)) {
        event_text_hit(feed->process->pid, row, &feed->text);
        add_line(feed, 1);
    }
    if (ring_integer(row, HITS_STOPPED, &stopped) && stopped == 1) {
        event_text_stop(feed->process->pid, row, &feed->text);
        add_line(feed, 1);
    }
    return 0;
}

/* Before its ring wraps around all of them are written again. */
static int on_breakpoint(void *arg, const struct ring_row *row)
{
    struct feed *feed = arg;
    double changed = ring_real(row, BREAKPOINTS_CHANGED);

    if (is_old(feed, row, BREAKPOINTS_CHANGED) || !(changed > feed->changed))
        return 0;
    feed->ts = feed->changed = changed;
    event_text_breakpoint(feed->process->pid, row, &feed->text);
    add_line(feed, 1);
    return 0;
}

static int on_crash(void *arg, const struct ring_row *row)
{
    struct feed *feed = arg;

    feed->ts = ring_real(row, CRASH_TS);
    if (!is_old(feed, row, CRASH_TS) && event_text_crash(feed->process->pid, row, &feed->text))
        add_line(feed, 1);
    return 0;
}

static void ignore_lost(void *arg, uint64_t count) {}

static int on_blocked(void *arg, const struct ring_row *row)
{
    struct feed *feed = arg;

    if (is_old(feed, row, LOOP_TS))
        return 0;
    feed->ts = ring_real(row, LOOP_TS);
    event_text_blocked(feed->process->pid, row, &feed->text);
    add_line(feed, 1);
    return 0;
}

/* The rings that are followed, in this order: that a thread goes on is in events, and that it
 * stopped, which is written before, in hits. So who sees the one has seen the other. What led to
 * the newest stop is looked for once more: that the thread went on before. */
static const struct following {
    enum recorded table;
    int (*row)(void *arg, const struct ring_row *row);
} followings[FEED_RINGS] = {
    {RECORDED_EVENTS, on_event},
    {RECORDED_HITS, on_hit},
    {RECORDED_CRASH, on_crash},
    {RECORDED_LOOP, on_blocked},
    {RECORDED_BREAKPOINTS, on_breakpoint},
};

/* Two runs of lines, each in order, become one: by time, those of the first
 * before those of the second. */
static void merge(struct feed *feed, uint64_t first, uint64_t second)
{
    size_t n = second - first, i = 0;
    struct line **held = malloc((n ? n : 1) * sizeof *held);

    if (!held)
        return;
    for (size_t k = 0; k < n; k++)
        held[k] = feed->lines[(first + k) % FEED_LINES_MAX];
    for (uint64_t to = first; i < n && to < feed->next; to++) {
        struct line **later = &feed->lines[second % FEED_LINES_MAX];
        bool is_first = second >= feed->next || held[i]->ts <= (*later)->ts;
        feed->lines[to % FEED_LINES_MAX] = is_first ? held[i++] : *later;
        second += !is_first;
    }
    free(held);
}

/* Lines say how many events were told before them. */
static void count_anew(struct feed *feed, uint64_t from, uint64_t before)
{
    for (uint64_t i = from; i < feed->next; i++) {
        struct line *line = feed->lines[i % FEED_LINES_MAX];
        line->before = before;
        before += line->count;
    }
}

/* Another ring is followed from now on. Of one that was made since the feed began
 * all is new, of one that was there it is what came since; of one that was only found since, what
 * was written before isn't. */
static void adopt(struct feed *feed, struct followed *followed, const struct ring_copy *copy)
{
    followed->since = copy->told.since;
    followed->at = copy->told.begin;
    followed->by_time = !copy->ask.mark.inode && followed->since < feed->began;
    followed->begin = (struct ring_mark){0};
}

/* One ring; its lines go among those from `from` on. */
static void follow_one(struct feed *feed, size_t i, const struct ring_copy *copy, uint64_t from)
{
    struct followed *followed = &feed->followed[i];
    struct ring_follower follower = {followings[i].row, on_lost, feed};
    uint64_t second = feed->next;

    if (!copy->told.is_there || copy->told.since != followed->since)
        return;
    feed->ts = 0;
    feed->by_time = followed->by_time;
    if (feed->by_time)
        follower.lost = ignore_lost;
    int r = ring_copy_pass(copy, &followed->at, &follower);
    if (r == 1)
        followed->at.row--; /* that comes again */
    followed->by_time = followed->by_time && copy->told.more;
    if (from >= feed->first && second > from && feed->next > second)
        merge(feed, from, second);
}

/* What the rings had, in the order of its times. */
static void follow_all(struct feed *feed, const struct ring_copy *copies)
{
    uint64_t from = feed->next, before = feed->events;

    feed->newest = 0;
    for (size_t i = 0; i < FEED_RINGS; i++)
        follow_one(feed, i, &copies[i], from);
    feed->until = feed->newest;
    if (feed->until > 0)
        follow_one(feed, 0, &copies[FEED_RINGS], from);
    feed->until = 0;
    if (from >= feed->first) /* else some were lost, and nothing was moved */
        count_anew(feed, from, before);
}

static void note_agent(struct feed *feed, bool attached)
{
    if (feed->attached == attached)
        return;
    feed->attached = attached;
    event_text_agent(feed->process->pid, attached, &feed->text);
    add_line(feed, 1);
}

/* False: it ends, and what was in its memory, the agent too, has gone before it has. */
static bool has_memory(pid_t pid)
{
    _cleanup_close_ int fd = proc_statm_open(pid);
    struct proc_statm statm;

    return fd >= 0 && proc_statm_read(fd, &statm) == 0 && statm.size > 0;
}

static void look_live(struct feed *feed, bool ended)
{
    uint64_t now = monotonic_ns();
    uint64_t end = ended ? now / SECOND + 1 : (now - SETTLED_NS) / SECOND;

    if (end > feed->second + SECONDS_MAX)
        feed->second = end - SECONDS_MAX;
    for (; feed->second < end; feed->second++) {
        live_block(feed->process, feed->second, &feed->text);
        if (feed->text.size)
            add_line(feed, 1);
    }
    feed->ended = ended;
}

/* ---- looking ---- */

void feed_look_deinit(struct feed_look *look) { text_deinit(&look->answer); }

/* Where the rings are now. Whether any is elsewhere than when it was copied last. */
static bool mark_all(const struct feed *feed, struct ring_mark marks[FEED_RINGS])
{
    bool any = false;

    for (size_t i = 0; i < FEED_RINGS; i++) {
        const struct ring_mark *seen = &feed->followed[i].seen;
        marks[i] = (struct ring_mark){0};
        if (!recording_mark(process_recording(feed->process), followings[i].table, &marks[i]))
            marks[i] = *seen; /* it changes, or there is none: the next time */
        any |= memcmp(&marks[i], seen, sizeof *seen) != 0;
    }
    return any;
}

/* now: where the ring is; of another file than the one that was there as the feed began, a place
 * in that means nothing. */
static struct ring_copy question(const struct feed *feed, size_t i, const struct ring_mark *now)
{
    const struct followed *followed = &feed->followed[i];
    const struct ring_mark none = {0};

    return (struct ring_copy){
        .ask = {.table = followings[i].table,
                .since = followed->since,
                .at = followed->at,
                .mark = now->inode == followed->begin.inode ? followed->begin : none,
                .most = UINT64_MAX}};
}

bool feed_look_begin(struct feed *feed, struct feed_look *look)
{
    /* asked first: then all that there will be is there */
    *look = (struct feed_look){.ended = process_ended(feed->process),
                               .attached = recording_attached(process_recording(feed->process))};
    if (feed->ended)
        return false;
    if (feed->kind == FEED_LIVE)
        return true;
    look->asks = mark_all(feed, look->marks);
    for (size_t i = 0; i < FEED_RINGS; i++)
        look->copies[i] = question(feed, i, &look->marks[i]);
    /* once more, behind the others: up to the newest stop they are wanted in this look */
    look->copies[FEED_RINGS] = question(feed, 0, &look->marks[0]);
    look->copies[FEED_RINGS].ask.goes_on = 1;
    return look->asks || look->ended || look->attached != feed->attached;
}

/* Whether another ring has come; then it is asked for its rows. */
static bool is_another(const struct ring_copy *copy)
{
    return copy->told.is_there && copy->told.since != copy->ask.since;
}

void feed_look_ask(struct feed *feed, struct feed_look *look)
{
    struct recording *recording = process_recording(feed->process);
    bool again = false;

    if (!look->asks)
        return;
    look->error = recording_copy(recording, look->copies, FEED_RINGS + 1, &look->answer);
    for (size_t i = 0; look->error == 0 && i < FEED_RINGS; i++) {
        struct ring_copy *copy = &look->copies[i];
        if (!is_another(copy))
            continue;
        again = true;
        adopt(feed, &feed->followed[i], copy);
        copy->ask = question(feed, i, &look->marks[i]).ask;
    }
    if (!again)
        return;
    look->copies[FEED_RINGS].ask.since = look->copies[0].ask.since;
    text_deinit(&look->answer);
    look->answer = TEXT_INIT;
    look->error = recording_copy(recording, look->copies, FEED_RINGS + 1, &look->answer);
}

/* Takes in what the rings had. Whether there may be more right now. */
static bool take_copies(struct feed *feed, struct feed_look *look)
{
    bool more = false;

    if (!look->asks || look->error < 0)
        return false;
    follow_all(feed, look->copies);
    for (size_t i = 0; i < FEED_RINGS; i++) {
        const struct ring_copy *copy = &look->copies[i];
        if (!copy->told.more && !is_another(copy))
            feed->followed[i].seen = look->marks[i];
        more |= copy->told.more;
    }
    return more;
}

/* The rows that nobody could decode are lost: how many is known only roughly. */
static void give_up(struct feed *feed, const struct feed_look *look)
{
    uint64_t count = 0;

    for (size_t i = 0; i < FEED_RINGS; i++)
        if (look->marks[i].first > feed->followed[i].at.row)
            count = ring_count_add(look->marks[i].first - feed->followed[i].at.row, count);
    on_lost(feed, count ? count : 1);
}

bool feed_look_end(struct feed *feed, struct feed_look *look)
{
    uint64_t before = feed->next;

    if (feed->kind == FEED_LIVE) {
        look_live(feed, look->ended);
        return feed->next != before || feed->ended;
    }
    if (look->attached && !look->ended)
        note_agent(feed, true);
    bool more = take_copies(feed, look);
    if (feed->attached && !look->attached && !look->ended && has_memory(feed->process->pid))
        note_agent(feed, false);
    bool gives_up = look->ended && look->error < 0 && ++feed->failed >= FAILED_MAX;
    if (gives_up)
        give_up(feed, look);
    if (look->ended && !more && (look->error == 0 || gives_up)) {
        event_text_end(feed->process->pid, &feed->process->ending, &feed->text);
        add_line(feed, 1);
        feed->ended = true;
    }
    return feed->next != before || feed->ended;
}

bool feed_look(struct feed *feed)
{
    _cleanup_(feed_look_deinit) struct feed_look look;

    if (!feed_look_begin(feed, &look))
        return false;
    feed_look_ask(feed, &look);
    return feed_look_end(feed, &look);
}

bool feed_is_asked_for(const struct feed *feed)
{
    return feed->kind == FEED_EVENTS && feed->process->examiner;
}

void feed_add(struct feed *feed, const struct text *lines)
{
    feed->ts = 0;
    for (size_t i = 0; i < lines->size;) {
        const char *line = lines->data + i;
        const char *newline = memchr(line, '\n', lines->size - i);
        size_t size = newline ? (size_t)(newline + 1 - line) : lines->size - i;
        text_add(&feed->text, line, size);
        add_line(feed, 1);
        i += size;
    }
}

static void begin_now(struct feed *feed)
{
    for (size_t i = 0; i < FEED_RINGS; i++)
        if (!recording_mark(process_recording(feed->process), followings[i].table,
                            &feed->followed[i].begin))
            feed->followed[i].begin = (struct ring_mark){0};
    feed->began = feed->changed = realtime_s();
    feed->attached = recording_attached(process_recording(feed->process));
}

int feed_new(struct process *process, enum feed_kind kind, double since, struct feed **out)
{
    struct feed *feed = calloc(1, sizeof *feed);

    if (!feed)
        return -ENOMEM;
    feed->process = process_ref(process);
    feed->kind = kind;
    feed->second = monotonic_ns() / SECOND;
    feed->began = since;
    if (since == 0)
        begin_now(feed);
    if (kind == FEED_LIVE)
        live_begin(process);
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

enum feed_kind feed_kind(const struct feed *feed) { return feed->kind; }

struct feed_cursor feed_end(const struct feed *feed)
{
    return (struct feed_cursor){feed->next, feed->events};
}

bool feed_readable(const struct feed *feed, const struct feed_cursor *at)
{
    return at->line < feed->next || feed->ended;
}

bool feed_ended(const struct feed *feed) { return feed->ended; }

void feed_skip(const struct feed *feed, struct feed_cursor *at, double since)
{
    for (; at->line < feed->next; at->line++) {
        const struct line *line = feed->lines[at->line % FEED_LINES_MAX];
        if (at->line < feed->first || line->ts == 0 || line->ts >= since)
            return;
        at->events = line->before + line->count;
    }
}

void feed_forget(struct feed *feed, uint64_t line)
{
    while (feed->first < feed->next && feed->first < line)
        forget_oldest(feed);
}

/* A line with fields in front. */
static void add_with(const struct feed *feed, const char *front, const char *line, size_t size,
                     struct text *out)
{
    if (feed->kind == FEED_LIVE) {
        text_add(out, line, size);
        return;
    }
    text_putc(out, '{');
    text_puts(out, front);
    text_add(out, line + 1, size - 1);
}

static void add_lost(struct feed *feed, uint64_t count)
{
    if (feed->kind == FEED_LIVE)
        text_printf(&feed->text, "# %lu blocks were lost\n\n", (unsigned long)count);
    else
        event_text_lost(feed->process->pid, count, &feed->text);
}

void feed_take(struct feed *feed, struct feed_cursor *at, size_t size, const char *front,
               struct text *out)
{
    size_t more = strlen(front);

    if (at->line < feed->first)
        at->line = feed->first;
    for (; at->line < feed->next; at->line++) {
        const struct line *line = feed->lines[at->line % FEED_LINES_MAX];
        if (out->size > 0 && out->size + more + line->size > size)
            return;
        if (line->before > at->events) {
            add_lost(feed, line->before - at->events);
            if (!feed->text.error)
                add_with(feed, front, feed->text.data, feed->text.size, out);
            text_clear(&feed->text);
            at->events = line->before;
            if (out->size + more + line->size > size)
                return;
        }
        add_with(feed, front, line->text, line->size, out);
        at->events += line->count;
    }
}
