/* What happens to rows later: words that are completed, and another ring that takes them over. */
#include "tests/unit/ring_world.h"

#include <math.h>
#include <stdint.h>

#define OPEN 500 /* tickets of the last rows that are kept */

static struct ring_ticket tickets[OPEN];

/* A span named by its id, of a length that differs. */
static void append_span(struct ring *ring, int64_t id)
{
    char name[64];
    int length = snprintf(name, sizeof name, "%0*lld", (int)(1 + id % 40), (long long)id);
    struct spans_row row = {.id = id, .name = {name, (size_t)length}, .duration = NAN};

    CHECK(spans_append(ring, &row, &tickets[id % OPEN]));
}

static void check_span(const struct ring_row *row, int64_t id, double duration)
{
    char name[64];
    int length = snprintf(name, sizeof name, "%0*lld", (int)(1 + id % 40), (long long)id);
    uint32_t size;
    bool cut;

    CHECK_INT(integer_of(row, SPANS_ID), id);
    const char *text = ring_text(row, SPANS_NAME, &size, &cut);
    CHECK(text && (int)size == length && memcmp(text, name, size) == 0);
    double got = ring_real(row, SPANS_DURATION);
    CHECK(isnan(duration) ? isnan(got) : got == duration);
}

/* Rows up to `until` (not itself), of which those from `first` on and below
 * `completed` have a duration. */
static size_t check_spans(const struct ring *ring, int64_t until, int64_t first, int64_t completed)
{
    struct ring_reader *reader = open_ring(ring, spans);
    struct ring_rows rows = copy_rows(reader);
    size_t n = rows.n;
    int64_t id = until - (int64_t)n;

    CHECK_INT(rows.counts.written, until);
    CHECK_INT(rows.counts.lost, id);
    for (size_t i = 0; i < n; i++, id++)
        check_span(rows.items[i], id, id >= first && id < completed ? (double)id / 4 : NAN);
    ring_rows_deinit(&rows);
    ring_reader_unref(reader);
    return n;
}

static bool complete(struct ring *ring, int64_t id)
{
    return spans_patch_duration(ring, &tickets[id % OPEN], (double)id / 4);
}

static void completes_before_and_after_overwriting(void)
{
    struct ring *ring = make_ring(spans, RING_SIZE_MIN);
    const struct ring_ticket nowhere = {0};

    for (int64_t id = 0; id < 5000; id++) {
        append_span(ring, id);
        if (id >= 100)
            CHECK(complete(ring, id - 100)); /* the ring holds more */
    }
    size_t n = check_spans(ring, 5000, 0, 4900);
    CHECK(n > 100 && n < 2000);
    struct ring_ticket old = tickets[4999 % OPEN];
    for (int64_t id = 5000; id < 8000; id++)
        append_span(ring, id);
    CHECK(!spans_patch_duration(ring, &old, 1e9)); /* overwritten */
    CHECK(!spans_patch_duration(ring, &nowhere, 1e9));
    CHECK(!ring_patch(ring, &tickets[7999 % OPEN], 1000, 0)); /* no such column */
    n = check_spans(ring, 8000, 0, 0);

    /* what is completed just within the last block that is there, and just not */
    int64_t kept = 8000 - (int64_t)n;
    CHECK(kept > 8000 - OPEN || n >= OPEN);
    struct ring_rows rows;
    struct ring_reader *reader = open_ring(ring, spans);
    for (int64_t id = 8000 - OPEN; id < 8000; id++)
        CHECK_INT(complete(ring, id), id >= kept);
    rows = copy_rows(reader);
    for (size_t i = 0; i < rows.n; i++)
        check_span(rows.items[i], kept + (int64_t)i,
                   kept + (int64_t)i >= 8000 - OPEN ? (double)(kept + (int64_t)i) / 4 : NAN);
    ring_rows_deinit(&rows);
    close_ring(ring, reader);
}

/* Another size; 1,000 rows more; and tickets of before. */
static struct ring *resize(struct ring *old, uint64_t size, int64_t *next, struct ring **retired)
{
    struct ring *ring = make_ring(spans, size);
    size_t before = check_spans(old, *next, 0, 0);
    uint64_t mapped = old->mapped;

    CHECK(ring_close(old));
    CHECK(!spans_append(old, &(struct spans_row){.id = 1}, NULL)); /* late writers drop */
    old->header->dropped = 0;
    ring_take_over(ring, old);
    CHECK(old->mapped < mapped);
    CHECK(!spans_append(old, &(struct spans_row){.id = 1}, NULL));
    CHECK(!ring_patch(old, &tickets[(*next + OPEN - 1) % OPEN], SPANS_DURATION, 0));
    size_t n = check_spans(ring, *next, 0, 0);
    CHECK(ring->blocks < 100 ? n <= before : n == before);
    *retired = old;
    return ring;
}

static void takes_over_into_any_size(void)
{
    static const uint64_t sizes[] = {RING_SIZE_MIN, 1 << 20,       100000,
                                     8 << 20,       RING_SIZE_MIN, 300001};
    struct ring *retired[ARRAY_SIZE(sizes)], *ring = make_ring(spans, 200000);
    int64_t next = 0;

    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        for (int64_t until = next + 1700 * (int64_t)i; next < until; next++)
            append_span(ring, next);
        ring = resize(ring, sizes[i], &next, &retired[i]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
        ring_free(retired[i]);
    ring_free(ring);
}

static void tickets_outlive_their_ring(void)
{
    struct ring *other, *retired[2], *ring = make_ring(spans, 1 << 20);
    int64_t next = 0;

    for (; next < 3000; next++)
        append_span(ring, next);
    ring = resize(ring, 2 << 20, &next, &retired[0]);
    other = make_ring(spans, RING_SIZE_MIN);
    ring = resize(ring, RING_SIZE_MIN, &next, &retired[1]);
    size_t kept = check_spans(ring, next, 0, 0);
    for (int64_t id = next - OPEN; id < next; id++)
        CHECK_INT(complete(ring, id), id >= next - (int64_t)kept);
    check_spans(ring, next, next - OPEN, next);

    /* not in another ring, though there is a row at that place */
    for (int64_t id = 0; id < 10; id++)
        CHECK(spans_append(other, &(struct spans_row){.id = id, .duration = NAN}, NULL));
    for (int64_t id = next - OPEN; id < next; id++)
        CHECK(!complete(other, id));
    struct ring_ticket ticket;
    CHECK(spans_append(other, &(struct spans_row){.id = 10}, &ticket));
    CHECK(!spans_patch_duration(ring, &ticket, 1e9));
    check_spans(ring, next, next - OPEN, next);
    ring_free(retired[0]);
    ring_free(retired[1]);
    ring_free(other);
    ring_free(ring);
}

/* The program writes all over its own mapping: no row that was taken over lies
 * outside of a block. */
static void scribbled_rows_are_bounded(void)
{
    unsigned state = 7;

    for (int round = 0; round < 50; round++) {
        struct ring *ring = make_ring(spans, RING_SIZE_MIN), *larger = make_ring(spans, 200000);
        for (int64_t id = 0; id < 1000; id++)
            append_span(ring, id);
        uint32_t *words = (uint32_t *)ring->header;
        for (int i = 0; i < (round + 1) * 100; i++) {
            state = state * 1103515245u + 12345u;
            words[(state >> 4) % (ring->mapped / 4)] = state % 3 ? state % 5000 : ~(state % 64);
        }
        for (int64_t id = 500; id < 1000; id++)
            complete(ring, id);
        CHECK(ring_close(ring));
        ring_take_over(larger, ring);
        for (int64_t id = 500; id < 1000; id++)
            complete(larger, id);
        append_span(larger, 1000);
        ring_free(ring);
        ring_free(larger);
    }
}

int main(void)
{
    completes_before_and_after_overwriting();
    takes_over_into_any_size();
    tickets_outlive_their_ring();
    scribbled_rows_are_bounded();
    return 0;
}
