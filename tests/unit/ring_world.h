/* Rings as an agent makes them, and their rows as the daemon sees them. */
#pragma once

#include "fs/link/ring_reader.h"
#include "schema/rows.h"
#include "tests/unit/check.h"

#include <stdlib.h>

static const struct ring_memory heap = {realloc, free};

static inline struct ring *make_ring(const struct ring_layout *layout, uint64_t size)
{
    struct ring *ring;

    CHECK_INT(ring_new(layout, size, 1.5, &ring), 0);
    return ring;
}

static inline struct ring_reader *open_ring(const struct ring *ring, const struct ring_layout *layout)
{
    struct ring_reader *reader;

    CHECK_INT(ring_reader_open(ring->fd, layout, &reader), 0);
    CHECK(ring_reader_since(reader) == 1.5);
    return reader;
}

/* All rows; what counting without copying says is checked against the copy. For rings nobody writes to. */
static inline struct ring_rows copy_rows(struct ring_reader *reader)
{
    struct ring_counts counts;
    struct ring_rows rows;

    CHECK_INT(ring_reader_copy(reader, NULL, &heap, &rows), 0);
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
