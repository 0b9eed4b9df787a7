/* Rings as an agent makes them, and their rows as the daemon sees them. */
#pragma once

#include "agent/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/recording/ring_reader.h"
#include "schema/rows.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <stdlib.h>

/* Columns, as schema/gc.sql and schema/spans.sql have them. */
enum { GC_TS, GC_TID, GC_GENERATION, GC_DURATION, GC_COLLECTED, GC_UNCOLLECTABLE };
enum {
    SPANS_ID,
    SPANS_PARENT,
    SPANS_NAME,
    SPANS_TID,
    SPANS_TASK,
    SPANS_START,
    SPANS_DURATION,
    SPANS_FAILED,
    SPANS_ATTRS
};

static const struct ring_layout *const gc = &recorded_layouts[RECORDED_GC];
static const struct ring_layout *const spans = &recorded_layouts[RECORDED_SPANS];

static inline struct ring *make_ring(const struct ring_layout *layout, uint64_t size)
{
    struct ring *ring;

    CHECK_INT(ring_new(layout, size, 1.5, &ring), 0);
    return ring;
}

static inline struct ring_reader *open_ring(const struct ring *ring,
                                            const struct ring_layout *layout)
{
    struct ring_reader *reader;

    CHECK_INT(ring_reader_open(ring->fd, layout, &reader), 0);
    CHECK(ring_reader_since(reader) == 1.5);
    return reader;
}

static inline void close_ring(struct ring *ring, struct ring_reader *reader)
{
    ring_reader_unref(reader);
    ring_free(ring);
}

/* All rows that a scan passes, copied. */
struct ring_rows {
    const struct ring_row **items;
    size_t n;
    struct ring_counts counts;
    size_t used, alloc, nalloc;
    char *bytes;
};

static inline int keep_row(void *arg, const struct ring_row *row)
{
    struct ring_rows *rows = arg;

    if (!row) {
        rows->n = rows->used = 0;
        return 0;
    }
    CHECK_INT(ARRAY_GROW(rows->bytes, rows->alloc, rows->used + row->size), 0);
    memcpy(rows->bytes + rows->used, row, row->size);
    rows->used += row->size;
    rows->n++;
    return 0;
}

static inline struct ring_rows scan_rows(struct ring_reader *reader)
{
    struct ring_rows rows = {0};

    CHECK_INT(ring_reader_scan(reader, keep_row, &rows, &rows.counts), 0);
    CHECK_INT(ARRAY_GROW(rows.items, rows.nalloc, rows.n), 0);
    for (size_t i = 0, at = 0; i < rows.n; i++) {
        rows.items[i] = (const struct ring_row *)(rows.bytes + at);
        at += rows.items[i]->size;
    }
    return rows;
}

static inline void ring_rows_deinit(struct ring_rows *rows)
{
    free(rows->items);
    free(rows->bytes);
    *rows = (struct ring_rows){0};
}

/* The same for rings nobody writes to: counting alone says so, too. */
static inline struct ring_rows copy_rows(struct ring_reader *reader)
{
    struct ring_rows rows = scan_rows(reader);
    struct ring_counts counts;

    CHECK_INT(rows.n, rows.counts.kept);
    ring_reader_count(reader, &counts);
    CHECK_INT(counts.written, rows.counts.written);
    CHECK_INT(counts.kept, rows.counts.kept);
    CHECK_INT(counts.lost, rows.counts.lost);
    return rows;
}

static inline struct ring_text text_of(const char *words)
{
    return (struct ring_text){words, words ? strlen(words) : 0};
}

static inline int64_t integer_of(const struct ring_row *row, unsigned column)
{
    int64_t value;

    CHECK(ring_integer(row, column, &value));
    return value;
}
