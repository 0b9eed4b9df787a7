/* What is copied out of a ring is what following it gives; a mark is where its writer was; and an
 * answer that somebody has made up is none, or has whole rows. */
#include "fs/recording/ring_copy.h"
#include "tests/unit/ring_world.h"

struct seen {
    int64_t next; /* number of the row to come */
    uint64_t rows, lost;
    bool any; /* rows may be of any number */
};

static int on_row(void *arg, const struct ring_row *row)
{
    struct seen *seen = arg;
    int64_t number;

    if (!seen->any) {
        CHECK(ring_integer(row, GC_COLLECTED, &number));
        CHECK_INT(number, seen->next);
    }
    seen->next++;
    seen->rows++;
    return 0;
}

static void on_lost(void *arg, uint64_t count)
{
    struct seen *seen = arg;

    CHECK(count > 0 && count <= RING_COUNT_MAX);
    seen->next += (int64_t)(count % INT32_MAX);
    seen->lost += count;
}

static int64_t written;

static void append(struct ring *ring, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        CHECK(gc_append(ring, &(struct gc_row){.collected = written++}, NULL));
}

/* Asks, and passes what came. */
static void copy(struct ring_reader *reader, struct ring_copy *one, struct ring_position *at,
                 struct seen *seen)
{
    const struct ring_follower follower = {on_row, on_lost, seen};
    _cleanup_(text_deinit) struct text answer = TEXT_INIT;
    struct ring_position behind;

    one->ask.at = *at;
    CHECK_INT(ring_copy_write(reader, &one->ask, &behind, &answer), 0);
    CHECK_INT(ring_copies_read(one, 1, &answer), 0);
    CHECK(one->told.is_there);
    CHECK_INT(ring_copy_pass(one, at, &follower), 0);
    if (one->told.since == one->ask.since)
        CHECK_INT(behind.row, at->row);
}

static void is_what_came(void)
{
    struct ring *ring = make_ring(gc, RING_SIZE_MIN);
    struct ring_reader *reader = open_ring(ring, gc);
    struct ring_copy one = {.ask = {.table = RECORDED_GC, .since = 1.5, .most = UINT64_MAX}};
    struct ring_position at = {0};
    struct seen seen = {0};

    written = 0;
    for (int i = 0; i < 100; i++) {
        append(ring, i);
        copy(reader, &one, &at, &seen);
        CHECK_INT(seen.next, written);
    }
    CHECK_INT(seen.lost, 0);
    append(ring, 100000);
    ring->header->dropped = 7;
    copy(reader, &one, &at, &seen);
    CHECK_INT(seen.rows + seen.lost, (uint64_t)written + 7);
    CHECK_INT(at.row, (uint64_t)written);
    append(ring, 100);
    one.ask.most = 10;
    seen = (struct seen){.next = (int64_t)at.row};
    copy(reader, &one, &at, &seen);
    CHECK_INT(seen.rows, 10);
    CHECK_INT(seen.lost, 90);
    close_ring(ring, reader);
}

static void many_come_in_pieces(void)
{
    struct ring *ring = make_ring(gc, 4 * RING_COPY_BYTES);
    struct ring_reader *reader = open_ring(ring, gc);
    struct ring_copy one = {.ask = {.table = RECORDED_GC, .since = 1.5, .most = UINT64_MAX}};
    struct ring_position at = {0};
    struct seen seen = {0};
    unsigned pieces = 0;

    written = 0;
    append(ring, 2 * RING_COPY_BYTES / 50);
    do
        copy(reader, &one, &at, &seen);
    while (++pieces < 10 && one.told.more);
    CHECK(pieces > 1 && pieces < 10);
    CHECK_INT(seen.rows, (uint64_t)written);
    close_ring(ring, reader);
}

static void goes_on_where_the_one_before_ended(void)
{
    struct ring *ring = make_ring(gc, RING_SIZE_MIN);
    struct ring_reader *reader = open_ring(ring, gc);
    _cleanup_(text_deinit) struct text answer = TEXT_INIT;
    struct ring_copy both[2] = {
        {.ask = {.table = RECORDED_GC, .since = 1.5, .most = UINT64_MAX}},
        {.ask = {.table = RECORDED_GC, .since = 1.5, .most = UINT64_MAX, .goes_on = 1}}};
    struct ring_position behind, at = {0};
    struct seen seen = {0};
    const struct ring_follower follower = {on_row, on_lost, &seen};

    written = 0;
    append(ring, 5);
    CHECK_INT(ring_copy_write(reader, &both[0].ask, &behind, &answer), 0);
    append(ring, 3);
    CHECK_INT(ring_copy_write(reader, &both[1].ask, &behind, &answer), 0);
    CHECK_INT(ring_copies_read(both, 2, &answer), 0);
    for (int i = 0; i < 2; i++)
        CHECK_INT(ring_copy_pass(&both[i], &at, &follower), 0);
    CHECK_INT(seen.rows, 8);
    CHECK_INT(at.row, 8);
    close_ring(ring, reader);
}

/* Of another ring than the one that was followed it is told where to begin. */
static void a_mark_is_where_the_writer_was(void)
{
    static const int64_t before[] = {0, 1, 2, 77, 300, 5000}, after[] = {0, 1, 400, 100000};

    for (size_t i = 0; i < ARRAY_SIZE(before) * ARRAY_SIZE(after) * 2; i++) {
        struct ring *ring = make_ring(gc, RING_SIZE_MIN);
        struct ring_reader *reader = open_ring(ring, gc);
        struct ring_copy one = {.ask = {.table = RECORDED_GC, .most = UINT64_MAX}};
        struct ring_position at = {0};
        struct seen seen = {0};
        bool by_file = i % 2;
        written = 0;
        append(ring, before[i / 2 % ARRAY_SIZE(before)]);
        int64_t there = written;
        CHECK(by_file ? ring_file_mark(ring->fd, &one.ask.mark)
                      : ring_reader_mark(reader, &one.ask.mark));
        append(ring, after[i / 2 / ARRAY_SIZE(before)]);
        copy(reader, &one, &at, &seen);
        CHECK_INT(seen.rows, 0);
        at = one.told.begin;
        one.ask.since = one.told.since;
        if (written - there < 1000)
            CHECK_INT(at.row, (uint64_t)there);
        seen.next = (int64_t)at.row;
        copy(reader, &one, &at, &seen);
        CHECK_INT(seen.next, written); /* no row from before, and what is lost is told */
        CHECK(seen.rows + seen.lost >= (uint64_t)(written - there));
        close_ring(ring, reader);
    }
}

/* Whichever byte of an answer is another one. */
static void lies_are_bounded(void)
{
    struct ring *ring = make_ring(gc, RING_SIZE_MIN);
    struct ring_reader *reader = open_ring(ring, gc);
    _cleanup_(text_deinit) struct text answer = TEXT_INIT;
    struct ring_copy one = {.ask = {.table = RECORDED_GC, .since = 1.5, .most = UINT64_MAX}};
    struct ring_position behind;
    unsigned refused = 0;

    written = 0;
    append(ring, 20);
    CHECK_INT(ring_copy_write(reader, &one.ask, &behind, &answer), 0);
    for (size_t i = 0; i < 8 * answer.size; i++) {
        struct seen seen = {.any = true};
        const struct ring_follower follower = {on_row, on_lost, &seen};
        struct ring_position at = {0};
        answer.data[i / 8] ^= (char)(1 << i % 8);
        if (ring_copies_read(&one, 1, &answer) < 0)
            refused++;
        else
            CHECK_INT(ring_copy_pass(&one, &at, &follower), 0);
        CHECK(at.row <= RING_COUNT_MAX && seen.rows <= 20);
        answer.data[i / 8] ^= (char)(1 << i % 8);
    }
    CHECK(refused > 100);
    for (size_t size = 0; size < answer.size; size++) {
        const struct text cut = {.data = answer.data, .size = size};
        CHECK_INT(ring_copies_read(&one, 1, &cut), -EPROTO);
    }
    close_ring(ring, reader);
}

int main(void)
{
    is_what_came();
    many_come_in_pieces();
    goes_on_where_the_one_before_ended();
    a_mark_is_where_the_writer_was();
    lies_are_bounded();
    return 0;
}
