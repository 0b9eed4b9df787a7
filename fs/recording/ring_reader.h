/* Reads a ring that an agent writes (agent/wire/ring_format.h), without a lock and without trust:
 * whatever lies there, only whole rows are seen, whose texts lie within them.
 *
 * The ring is mapped read-only; its seals make sure that it can't shrink, which
 * would end the daemon. */
#pragma once

#include "agent/wire/ring_format.h"

#include <stdbool.h>
#include <stddef.h>

struct ring_reader;

/* fd stays the caller's. -EPROTO: it is no ring of that layout, or one that its owner can change
 * the size of; -ENOMEM. The caller owns one reference. */
int ring_reader_open(int fd, const struct ring_layout *layout, struct ring_reader **out);
struct ring_reader *ring_reader_ref(struct ring_reader *reader);
void ring_reader_unref(struct ring_reader *reader); /* NULL is fine */

/* Whether the file is one that a ring can be in: nobody can change its size. *size: that. */
bool ring_file_is_safe(int fd, uint64_t *size);

const struct ring_layout *ring_reader_layout(const struct ring_reader *reader);
/* Bytes that it holds of memory. */
size_t ring_reader_size(const struct ring_reader *reader);
/* [s] since 1970, when it was made. */
double ring_reader_since(const struct ring_reader *reader);

struct ring_counts {
    uint64_t written; /* rows, ever */
    uint64_t kept;    /* of these, still there */
    uint64_t lost;    /* overwritten, or never written because somebody else just wrote */
};

/* Counts without copying the rows. Of a ring that nobody scribbles over, the same as a scan's. */
void ring_reader_count(struct ring_reader *reader, struct ring_counts *out);

/* Passes each row of one moment to `each`, oldest first and none left out in between: it is good
 * as long as the call lasts. NULL instead of a row: those so far are to be forgotten, since later
 * ones were overwritten meanwhile. What `each` returns, if not 0, ends it and is returned; or
 * -ENOMEM. counts may be NULL. */
int ring_reader_scan(struct ring_reader *reader, int (*each)(void *arg, const struct ring_row *row),
                     void *arg, struct ring_counts *counts);

/* How far somebody has followed a ring; zero: nothing of it yet. It holds for a ring of another
 * size, too, that took over the rows (ring_reader_since() is the same). */
struct ring_position {
    uint64_t row;     /* rows that were written before */
    uint64_t dropped; /* rows that could not be written */
};

struct ring_follower {
    int (*row)(void *arg, const struct ring_row *row); /* as in ring_reader_scan() */
    void (*lost)(void *arg, uint64_t count);           /* rows before the next one */
    void *arg;
};

/* Passes what came after a position, and moves that. Cheap where nothing came. -ENOMEM, or
 * what follower->row returns. */
int ring_reader_follow(struct ring_reader *reader, struct ring_position *at,
                       const struct ring_follower *follower);
struct ring_mark; /* ring_copy.h */

/* Rows that could not be written. */
uint64_t ring_reader_dropped(const struct ring_reader *reader);
/* The numbers of a mark, but for the inode, of a ring that need not be one: nothing of it is
 * believed, or mapped. False: they change, or the file can't be read. */
bool ring_file_mark(int fd, struct ring_mark *out);
bool ring_reader_mark(const struct ring_reader *reader, struct ring_mark *out);
/* Where the writer was at a mark that was made of that ring; zero: at the beginning. */
struct ring_position ring_reader_position(const struct ring_reader *reader,
                                          const struct ring_mark *mark);
/* Whether it is a row of that layout, in no more than `left` bytes. */
bool ring_row_fits(const struct ring_layout *layout, const struct ring_row *row, uint32_t left);

/* What a column of a row is. */
static inline bool ring_integer(const struct ring_row *row, unsigned column, int64_t *out)
{
    *out = (int64_t)row->words[column];
    return *out != RING_NULL_INTEGER;
}

static inline double ring_real(const struct ring_row *row, unsigned column)
{
    double value;
    __builtin_memcpy(&value, &row->words[column], sizeof value);
    return value; /* NaN: NULL */
}

/* NULL: NULL. *cut: it was longer. */
static inline const char *ring_text(const struct ring_row *row, unsigned column, uint32_t *size,
                                    bool *cut)
{
    uint64_t word = row->words[column];
    uint32_t length = (uint32_t)(word >> 32);

    *size = length & ~RING_TEXT_CUT;
    *cut = length & RING_TEXT_CUT;
    return word ? (const char *)row + (uint32_t)word : NULL;
}

/* ---- what ring_reader.c and ring_follow.c share ---- */

#define RING_COLUMNS_MAX 64
#define RING_COUNT_MAX ((uint64_t)INT64_MAX) /* what SQL can say */

struct ring_reader {
    unsigned refs;
    const struct ring_layout *layout;
    const char *memory;
    size_t mapped;
    uint32_t block_size;
    uint32_t blocks;
    uint32_t batch; /* bytes that are copied at once; some blocks at least */
    double since;
    uint32_t row_min; /* bytes of a row whose texts are all NULL */
    unsigned n_texts;
    uint8_t texts[RING_COLUMNS_MAX]; /* columns that are TEXT */
};

/* What a block held at one moment. */
struct ring_held {
    const struct ring_block *block;
    uint64_t sequence; /* 0: it had been overwritten */
    uint64_t first;
    uint32_t used;    /* bytes, within the block, a multiple of 8 */
    const char *copy; /* of these; NULL: it was overwritten until then */
};

/* b is at most RING_COUNT_MAX. */
static inline uint64_t ring_count_add(uint64_t a, uint64_t b)
{
    return a > RING_COUNT_MAX - b ? RING_COUNT_MAX : a + b;
}

/* What the block of that sequence holds now; sequence 0: it isn't there. */
struct ring_held ring_see(const struct ring_reader *reader, uint64_t sequence);
/* The blocks that may be there: how many, with sequences from *oldest on. */
uint32_t ring_extent(const struct ring_reader *reader, uint64_t *oldest);
/* Copies held->used bytes; sets held->copy. */
void ring_copy_block(struct ring_held *held, uint64_t *to);
/* The rows of a copied block. *n: how many there are, *good: no bad one ended them early. */
int ring_pass_rows(const struct ring_reader *reader, const struct ring_held *held,
                   int (*each)(void *arg, const struct ring_row *row), void *arg, uint64_t *n,
                   bool *good);
