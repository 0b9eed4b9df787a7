/* What is written into a ring is what its readers see, whatever the sizes of the
 * ring and the rows. */
#include "tests/unit/ring_world.h"

#include <math.h>

static void append_gc(struct ring *ring, int64_t number)
{
    struct gc_row row = {.ts = (double)number / 2,
                         .tid = number,
                         .duration = NAN,
                         .collected = -number,
                         .generation = 2,
                         .uncollectable = RING_NULL_INTEGER};

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

/* How many gc rows a ring holds, and one block of it. */
static int64_t gc_rows(const struct ring *ring, int64_t *block)
{
    *block = (ring->block_size - 32) / 56;
    return ring->blocks * *block;
}

static void wraps_at_every_size(void)
{
    for (uint64_t size = RING_SIZE_MIN; size < 8u << 20; size += size / 3 + 4567) {
        struct ring *ring = make_ring(gc, size);
        struct ring_reader *reader = open_ring(ring, gc);
        int64_t block, fits = gc_rows(ring, &block), written = 0;

        CHECK((uint64_t)ring->blocks * ring->block_size >= size && ring->blocks >= 4);
        CHECK_INT(ring_reader_size(reader), ring->mapped);
        check_gc(reader, 0, 0);
        for (int64_t until = 1; until < 3 * fits;
             until += until < block + 2 ? block / 3 : fits / 5 + 7) {
            while (written < until)
                append_gc(ring, written++);
            check_gc(reader, written, (size_t)(written <= fits ? written : fits - block));
        }
        close_ring(ring, reader);
    }
    struct ring *ring = NULL;
    CHECK_INT(ring_new(gc, RING_SIZE_MIN - 1, 0, &ring), -EINVAL);
    CHECK_INT(ring_new(gc, RING_SIZE_MAX + 1ull, 0, &ring), -EINVAL);
    CHECK(!ring);
}

static uint64_t pattern(uint32_t size, uint32_t word)
{
    return (size * 0x9e3779b97f4a7c15ull) ^ (word * 0xff51afd7ed558ccdull);
}

static void check_wide_row(const struct ring_row *row, uint32_t size)
{
    CHECK_INT(row->size, size);
    for (uint32_t i = 0; i < (size - 8) / 8; i++)
        CHECK(row->words[i] == pattern(size, i));
}

static void rows_have_every_size(void)
{
    static const struct ring_layout wide = {"wide", "I", 1, 42};
    struct ring *ring = make_ring(&wide, RING_SIZE_MIN);
    struct ring_reader *reader = open_ring(ring, &wide);
    uint64_t written = 0;

    for (uint32_t size = 16; size <= RING_ROW_MAX; size += 8) {
        struct ring_row *row = ring_begin(ring, size);
        CHECK(row);
        for (uint32_t i = 0; i < (size - 8) / 8; i++)
            row->words[i] = pattern(size, i);
        ring_end(ring, NULL);
        written++;
        struct ring_rows rows = copy_rows(reader);
        CHECK(rows.n >= 3 || rows.n == written); /* at most one block of four is cut */
        for (size_t i = 0; i < rows.n; i++)
            check_wide_row(rows.items[i], size - 8 * (uint32_t)(rows.n - 1 - i));
        CHECK_INT(rows.counts.written, written);
        ring_rows_deinit(&rows);
    }
    CHECK(!ring_begin(ring, RING_ROW_MAX + 8)); /* and the next one is not stopped by it */
    CHECK(ring_begin(ring, 16));
    close_ring(ring, reader);
}

/* ---- texts ---- */

static void check_text(const struct ring_row *row, unsigned column, const char *want, size_t size,
                       bool is_cut)
{
    uint32_t got_size;
    bool cut;
    const char *got = ring_text(row, column, &got_size, &cut);

    CHECK(!got == !want);
    if (got) {
        CHECK_INT(got_size, size);
        CHECK(cut == is_cut && memcmp(got, want, size) == 0);
    }
}

static void check_one_text(struct ring_text text, size_t size)
{
    struct ring *ring = make_ring(spans, RING_SIZE_MIN);
    struct ring_reader *reader = open_ring(ring, spans);
    struct spans_row row = {.name = text_of("forward"), .task = text, .attrs = text_of("{}")};

    CHECK(spans_append(ring, &row, NULL));
    struct ring_rows rows = copy_rows(reader);
    CHECK_INT(rows.n, 1);
    check_text(rows.items[0], SPANS_NAME, "forward", 7, false);
    check_text(rows.items[0], SPANS_TASK, text.bytes, size, size < text.size);
    check_text(rows.items[0], SPANS_ATTRS, "{}", 2, false);
    ring_rows_deinit(&rows);
    close_ring(ring, reader);
}

/* A text of n characters of `bytes` bytes each, which begins after `before` others. */
static void check_cut(const char *character, size_t before, size_t want)
{
    static char text[3 * RING_TEXT_MAX];
    size_t size = strlen(character);

    memset(text, 'x', before);
    for (size_t at = before; at + size <= sizeof text; at += size)
        memcpy(text + at, character, size);
    check_one_text((struct ring_text){text, 2 * RING_TEXT_MAX}, want);
}

static void texts_of_every_size(void)
{
    static char text[RING_TEXT_MAX + 100];

    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(i * 7 % 251); /* NULs too */
    for (size_t size = 0; size < 40; size++)
        check_one_text((struct ring_text){text, size}, size);
    for (size_t size = RING_TEXT_MAX - 10; size <= sizeof text; size++)
        check_one_text((struct ring_text){text, size},
                       size < RING_TEXT_MAX
                           ? size
                           : RING_TEXT_MAX - ((text[RING_TEXT_MAX] & 0xc0) == 0x80));
    check_one_text((struct ring_text){NULL, 5}, 0);
    for (size_t before = 0; before < 8; before++) {
        check_cut("\xc3\xa9", before, RING_TEXT_MAX - before % 2);
        check_cut("\xe2\x82\xac", before, RING_TEXT_MAX - (RING_TEXT_MAX - before) % 3);
        check_cut("\xf0\x9f\x90\x8d", before, RING_TEXT_MAX - (RING_TEXT_MAX - before) % 4);
        check_cut("\x80", before, RING_TEXT_MAX); /* no UTF-8 */
    }
}

/* ---- scans that end early ---- */

struct ending {
    int64_t last;
    int after;
};

static int end_scan(void *arg, const struct ring_row *row)
{
    struct ending *ending = arg;

    CHECK_INT(integer_of(row, GC_TID), ++ending->last);
    return --ending->after == 0 ? -EINTR : 0;
}

static void a_scan_ends_when_told(void)
{
    struct ring *ring = make_ring(gc, RING_SIZE_DEFAULT);
    struct ring_reader *reader = open_ring(ring, gc);

    for (int64_t i = 1; i <= 10000; i++)
        append_gc(ring, i);
    for (int after = 1; after <= 10000; after += after < 3 ? 1 : 1111) {
        struct ending ending = {0, after};
        CHECK_INT(ring_reader_scan(reader, end_scan, &ending, NULL), -EINTR);
        CHECK_INT(ending.last, after);
    }
    struct ending never = {0, 10001};
    struct ring_counts counts;
    CHECK_INT(ring_reader_scan(reader, end_scan, &never, &counts), 0);
    CHECK(never.last == 10000 && counts.kept == 10000 && counts.lost == 0);
    close_ring(ring, reader);
}

int main(void)
{
    wraps_at_every_size();
    rows_have_every_size();
    texts_of_every_size();
    a_scan_ends_when_told();
    return 0;
}
