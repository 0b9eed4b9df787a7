/* Writes rows into a ring (ring_format.h). A writer never waits and never allocates: a row that another
 * thread's row is in the way of, for longer than a few tries, is dropped and counted. */
#pragma once

#include "agent/ring_format.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* bytes NULL: NULL. */
struct ring_text {
    const char *bytes;
    size_t size;
};

struct ring {
    struct ring_header *header;  /* shared */
    struct ring_block *block;    /* the one that is written */
    uint32_t room;               /* bytes left in it */
    bool busy;                   /* somebody writes */
    int fd;
    uint64_t inode;              /* of fd, since the program may close descriptors it doesn't know */
    uint64_t rows;               /* written so far */
};

/* Where a row is, for what is known of it only later. */
struct ring_ticket {
    uint64_t sequence;           /* 0: nowhere */
    uint32_t offset;             /* in the block's rows */
};

/* Makes a ring, all its memory there already, sealed against changes of its size. size: bytes of
 * rows, RING_SIZE_MIN to RING_SIZE_MAX, rounded to whole blocks. now: [s] since 1970. 0 or -errno. */
int ring_new(const struct ring_layout *layout, uint64_t size, double now, struct ring **out);
/* Gives up this process's share of it, after fork too, and the descriptor if it is still ours.
 * Nobody may write any more. NULL is fine. */
void ring_free(struct ring *ring);

/* Room for a row of `size` bytes, a multiple of 8 and at most RING_ROW_MAX; its size is set. Until ring_end()
 * the ring is the caller's. NULL: the row is dropped. */
struct ring_row *ring_begin(struct ring *ring, uint32_t size);
/* Publishes it. ticket may be NULL. */
void ring_end(struct ring *ring, struct ring_row *row, struct ring_ticket *ticket);
/* Sets one word of a row that is published. false: it has been overwritten, or the ring is busy. */
bool ring_patch(struct ring *ring, const struct ring_ticket *ticket, unsigned column, uint64_t word);

/* Appends all rows of `from` that are still there, oldest first, as far as they fit; for a ring that
 * nobody writes to, of the same layout. */
void ring_take_over(struct ring *ring, const struct ring *from);

/* ---- for the generated writers (schema/generate) ---- */

static inline uint32_t ring_text_size(const struct ring_text *text)
{
    return !text->bytes ? 0 : text->size < RING_TEXT_MAX ? (uint32_t)text->size : RING_TEXT_MAX;
}

static inline uint32_t ring_row_size(unsigned columns, uint32_t texts)
{
    return (uint32_t)(sizeof(struct ring_row) + columns * sizeof(uint64_t) + texts + 7) & ~7u;
}

static inline void ring_put_real(struct ring_row *row, unsigned column, double value)
{
    memcpy(&row->words[column], &value, sizeof value);
}

/* offset: where its bytes go; returns where those of the next one do. */
static inline uint32_t ring_put_text(struct ring_row *row, unsigned column, const struct ring_text *text,
                                     uint32_t offset)
{
    uint32_t size = ring_text_size(text);

    if (!text->bytes) {
        row->words[column] = 0;
        return offset;
    }
    memcpy((char *)row + offset, text->bytes, size);
    row->words[column] = RING_TEXT_WORD(offset, size | (text->size > RING_TEXT_MAX ? RING_TEXT_CUT : 0));
    return offset + size;
}
