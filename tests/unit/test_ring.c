/* What is written into a ring is what its readers see, whatever the sizes of the ring and the rows. */
#include "tests/unit/ring_world.h"

#include <math.h>

/* columns, as schema/gc.sql and schema/spans.sql have them */
enum { GC_TS, GC_TID, GC_GENERATION, GC_DURATION, GC_COLLECTED, GC_UNCOLLECTABLE };
enum { SPANS_NAME = 2, SPANS_TASK = 4, SPANS_DURATION = 6, SPANS_ATTRS = 8 };

static const struct ring_layout *const gc = &recorded_layouts[RECORDED_GC];
static const struct ring_layout *const spans = &recorded_layouts[RECORDED_SPANS];

static void append_gc(struct ring *ring, int64_t number)
{
    struct gc_row row = {.ts = (double)number / 2, .tid = number, .duration = NAN, .collected = -number,
                         .generation = 2, .uncollectable = RING_NULL_INTEGER};

    CHECK(gc_append(ring, &row, NULL));
}

/* The last rows are there, in order, and all others are counted as lost. */
static void check_gc(struct ring_reader *reader, int64_t written, size_t kept_at_least)
{
    struct ring_rows rows = copy_rows(reader);
    int64_t number = written - (int64_t)rows.n;
    int64_t unused;

    CHECK(rows.n >= kept_at_least);
    CHECK_INT(rows.counts.written, written);
    CHECK_INT(rows.counts.lost, number);
    for (size_t i = 0; i < rows.n; i++, number++) {
        const struct ring_row *row = rows.items[i];
        CHECK(ring_real(row, GC_TS) == (double)number / 2 && isnan(ring_real(row, GC_DURATION)));
        CHECK_INT(integer_of(row, GC_TID), number);
        CHECK_INT(integer_of(row, GC_COLLECTED), -number);
        CHECK(!ring_integer(row, GC_UNCOLLECTABLE, &unused));
    }
    ring_rows_deinit(&rows);
}

static void wraps_at_every_size(void)
{
    for (uint64_t size = RING_SIZE_MIN; size < 8u << 20; size += size / 3 + 4567) {
        struct ring *ring = make_ring(gc, size);
        struct ring_reader *reader = open_ring(ring, gc);
        int64_t fits = (int64_t)(ring->blocks * (uint64_t)((ring->block_size - 32) / 56));
        int64_t block = fits / ring->blocks, written = 0;

        CHECK((uint64_t)ring->blocks * ring->block_size >= size && ring->blocks >= 4);
        CHECK(ring_reader_size(reader) > size);
        check_gc(reader, 0, 0);
        for (int64_t until = 1; until < 3 * fits; until += until < block + 2 ? block / 3 : fits / 5 + 7) {
            while (written < until)
                append_gc(ring, written++);
            check_gc(reader, written, (size_t)(written <= fits ? written : fits - block));
        }
        ring_reader_unref(reader);
        ring_free(ring);
    }
}

static void texts_come_back(void)
{
    struct ring *ring = make_ring(spans, RING_SIZE_MIN);
    struct ring_reader *reader = open_ring(ring, spans);
    struct spans_row row = {.id = 1, .parent = RING_NULL_INTEGER, .name = text_of("forward"), .task = text_of(""),
                            .start = 2.5, .duration = NAN};
    struct ring_ticket ticket;
    uint32_t size;
    bool cut;

    CHECK(spans_append(ring, &row, &ticket));
    CHECK(spans_patch_duration(ring, &ticket, 0.25));
    struct ring_rows rows = copy_rows(reader);
    CHECK_INT(rows.n, 1);
    const char *name = ring_text(rows.items[0], SPANS_NAME, &size, &cut);
    CHECK(size == 7 && !cut && memcmp(name, "forward", 7) == 0);
    CHECK(ring_text(rows.items[0], SPANS_TASK, &size, &cut) && size == 0 && !cut);
    CHECK(!ring_text(rows.items[0], SPANS_ATTRS, &size, &cut));
    CHECK(ring_real(rows.items[0], SPANS_DURATION) == 0.25);
    ring_rows_deinit(&rows);
    ring_reader_unref(reader);
    ring_free(ring);
}

int main(void)
{
    wraps_at_every_size();
    texts_come_back();
    return 0;
}
