/* append ROUNDS: writes rows as the agent does and reads them as the daemon does. Prints lines of a
 * name and nanoseconds, a line for each round: of a row that is appended, of one whose duration is
 * known later, of the clock that a row's time is from, and of a row of a million that is read. */
#include "fs/recording/ring_reader.h"
#include "schema/rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ROWS 1000000

static volatile double last_time; /* so that the clock is really read */

static double now_ns(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static struct ring_text text_of(const char *words)
{
    return (struct ring_text){words, strlen(words)};
}

static void append_spans(struct ring *ring, bool complete, const char *name)
{
    struct spans_row row = {
        .parent = 1,
        .name = text_of("forward"),
        .tid = 4711,
        .start = 1.7e9,
        .duration = NAN,
        .failed = RING_NULL_INTEGER,
        .attrs = text_of("{\"step\": 1234, \"loss\": 0.12345}"),
    };
    struct ring_ticket ticket;
    double begin = now_ns(CLOCK_MONOTONIC);

    for (row.id = 1; row.id <= ROWS; row.id++) {
        spans_append(ring, &row, &ticket);
        if (complete)
            spans_patch_duration(ring, &ticket, 0.5);
    }
    printf("%s %.2f\n", name, (now_ns(CLOCK_MONOTONIC) - begin) / ROWS);
}

static void append_gc(struct ring *ring)
{
    struct gc_row row = {.ts = 1.7e9, .duration = 0.1};
    double begin = now_ns(CLOCK_MONOTONIC);

    for (row.tid = 1; row.tid <= ROWS; row.tid++)
        gc_append(ring, &row, NULL);
    printf("gc %.2f\n", (now_ns(CLOCK_MONOTONIC) - begin) / ROWS);
}

static void read_clock(void)
{
    double begin = now_ns(CLOCK_MONOTONIC);

    for (int i = 0; i < ROWS; i++)
        last_time = now_ns(CLOCK_REALTIME);
    printf("clock %.2f\n", (now_ns(CLOCK_MONOTONIC) - begin) / ROWS);
}

static int look_at(void *arg, const struct ring_row *row)
{
    *(uint64_t *)arg += row ? row->words[0] : 0;
    return 0;
}

static int scan_rows(const struct ring *ring, const struct ring_layout *layout)
{
    struct ring_reader *reader;
    struct ring_counts counts;
    uint64_t sum = 0;

    int r = ring_reader_open(ring->fd, layout, &reader);
    if (r < 0)
        return r;
    double begin = now_ns(CLOCK_MONOTONIC);
    r = ring_reader_scan(reader, look_at, &sum, &counts);
    if (r == 0)
        printf("scan %.2f\n", (now_ns(CLOCK_MONOTONIC) - begin) / (double)counts.kept);
    ring_reader_unref(reader);
    return r;
}

static int measure(long rounds)
{
    const struct ring_layout *spans = &recorded_layouts[RECORDED_SPANS],
                             *gc = &recorded_layouts[RECORDED_GC];
    struct ring *small = NULL, *large = NULL, *small_gc = NULL;

    int r = ring_new(spans, RING_SIZE_DEFAULT, 0, &small);
    r = r ? r : ring_new(spans, 160 << 20, 0, &large);
    r = r ? r : ring_new(gc, RING_SIZE_DEFAULT, 0, &small_gc);
    for (; r == 0 && rounds > 0; rounds--) {
        append_spans(small, false, "spans");
        append_spans(small, true, "completed");
        append_spans(large, false, "large");
        append_gc(small_gc);
        read_clock();
        r = scan_rows(large, spans);
    }
    ring_free(small);
    ring_free(large);
    ring_free(small_gc);
    return r;
}

int main(int argc, char **argv)
{
    int r = argc == 2 ? measure(atol(argv[1])) : -1;

    if (r < 0)
        fprintf(stderr, "append: %s\n", argc == 2 ? strerror(-r) : "usage: append ROUNDS");
    return r < 0;
}
