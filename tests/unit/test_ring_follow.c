/* Who follows a ring gets each row once and in order, and is told of each that it doesn't get. */
#include "fs/recording/ring_copy.h"
#include "tests/unit/ring_world.h"

struct seen {
    int64_t next; /* number of the row to come */
    uint64_t rows, lost;
    struct ring *grows; /* rows come to it when the first one is passed; NULL: none */
};

static void append(struct ring *ring, int64_t count);

/* Rows are numbered by their column `collected`. */
static int on_row(void *arg, const struct ring_row *row)
{
    struct seen *seen = arg;
    int64_t number;

    CHECK(ring_integer(row, GC_COLLECTED, &number));
    CHECK_INT(number, seen->next);
    seen->next++;
    seen->rows++;
    if (seen->grows)
        append(seen->grows, 300); /* more than a block has room for */
    seen->grows = NULL;
    return 0;
}

static void on_lost(void *arg, uint64_t count)
{
    struct seen *seen = arg;

    CHECK(count > 0);
    seen->next += (int64_t)count;
    seen->lost += count;
}

static void follow(struct ring_reader *reader, struct ring_position *at, struct seen *seen)
{
    struct ring_follower follower = {on_row, on_lost, seen};
    CHECK_INT(ring_reader_follow(reader, at, &follower), 0);
}

static int64_t written;

static void append(struct ring *ring, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        CHECK(gc_append(ring, &(struct gc_row){.collected = written++}, NULL));
}

static void each_row_once(void)
{
    struct ring *ring = make_ring(gc, RING_SIZE_MIN);
    struct ring_reader *reader = open_ring(ring, gc);
    struct ring_position at = {0};
    struct seen seen = {0};

    written = 0;
    follow(reader, &at, &seen);
    CHECK_INT(seen.rows, 0);
    for (int i = 0; i < 200; i++) {
        append(ring, i);
        follow(reader, &at, &seen);
        CHECK_INT(seen.next, written);
        follow(reader, &at, &seen); /* nothing came */
    }
    CHECK_INT(seen.rows, (uint64_t)written);
    CHECK_INT(seen.lost, 0);
    close_ring(ring, reader);
}

static void what_was_overwritten_is_said(void)
{
    struct ring *ring = make_ring(gc, RING_SIZE_MIN);
    struct ring_reader *reader = open_ring(ring, gc);
    struct ring_position at = {0};
    struct seen seen = {0};

    written = 0;
    append(ring, 10);
    follow(reader, &at, &seen);
    append(ring, 100000);
    follow(reader, &at, &seen);
    CHECK_INT(seen.next, written);
    CHECK_INT(seen.rows + seen.lost, (uint64_t)written);
    CHECK(seen.rows > 100 && seen.lost > 90000);
    close_ring(ring, reader);
}

static void none_is_left_out_that_comes_meanwhile(void)
{
    struct ring *ring = make_ring(gc, RING_SIZE_MIN);
    struct ring_reader *reader = open_ring(ring, gc);
    struct ring_position at = {0};
    struct seen seen = {.grows = ring};

    written = 0;
    append(ring, 1);
    follow(reader, &at, &seen);
    CHECK_INT(seen.rows, 301);
    CHECK_INT(seen.lost, 0);
    CHECK(ring->head > 1);
    close_ring(ring, reader);
}

static void begins_at_the_end(void)
{
    struct ring *ring = make_ring(gc, RING_SIZE_MIN);
    struct ring_reader *reader = open_ring(ring, gc);
    struct ring_mark mark = {0};

    written = 0;
    append(ring, 12345);
    CHECK(ring_reader_mark(reader, &mark));
    struct ring_position at = ring_reader_position(reader, &mark);
    struct seen seen = {.next = written};
    follow(reader, &at, &seen);
    CHECK_INT(seen.rows + seen.lost, 0);
    append(ring, 3);
    follow(reader, &at, &seen);
    CHECK_INT(seen.rows, 3);
    CHECK_INT(seen.lost, 0);
    close_ring(ring, reader);
}

/* Rows that are dropped have no number. */
static void what_was_dropped_is_said(void)
{
    struct ring *ring = make_ring(gc, RING_SIZE_MIN);
    struct ring_reader *reader = open_ring(ring, gc);
    struct ring_position at = {0};
    struct seen seen = {0};

    written = 0;
    append(ring, 5);
    ring->header->dropped = 7;
    follow(reader, &at, &seen);
    CHECK_INT(seen.rows, 5);
    CHECK_INT(seen.lost, 7);
    follow(reader, &at, &seen);
    CHECK_INT(seen.lost, 7);
    close_ring(ring, reader);
}

static void goes_on_in_another_size(void)
{
    static const uint64_t sizes[] = {1 << 20, RING_SIZE_MIN, 300001};
    struct ring *ring = make_ring(gc, RING_SIZE_MIN);
    struct ring_position at = {0};
    struct seen seen = {0};

    written = 0;
    append(ring, 20000);
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct ring_reader *reader = open_ring(ring, gc);
        follow(reader, &at, &seen);
        ring_reader_unref(reader);
        CHECK_INT(seen.next, written);
        append(ring, 50);
        struct ring *larger = make_ring(gc, sizes[i]);
        CHECK(ring_close(ring));
        ring_take_over(larger, ring);
        ring_free(ring);
        ring = larger;
        append(ring, 50);
    }
    struct ring_reader *reader = open_ring(ring, gc);
    uint64_t rows = seen.rows;
    follow(reader, &at, &seen);
    CHECK_INT(seen.next, written);
    CHECK_INT(seen.rows - rows, 100);
    close_ring(ring, reader);
}

int main(void)
{
    each_row_once();
    what_was_overwritten_is_said();
    none_is_left_out_that_comes_meanwhile();
    begins_at_the_end();
    what_was_dropped_is_said();
    goes_on_in_another_size();
    return 0;
}
