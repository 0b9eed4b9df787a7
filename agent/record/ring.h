/* Writes rows into a ring (wire/ring_format.h). A writer never waits and never allocates: a row
 * that another thread's row is in the way of, for longer than a few tries, is dropped and counted.
 *
 * What lies in the shared memory is only written, but for rows that were published and are bounded
 * when they are looked at again: whoever scribbles there spoils rows, not the program. */
#pragma once

#include "agent/wire/ring_format.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct ring {
    struct ring_header *header; /* shared, as all rows are */
    struct ring_block *block;   /* the one that is written; NULL: none yet */
    uint32_t used;              /* bytes of it */
    uint32_t room;              /* bytes left in it */
    uint32_t begun;             /* bytes of the row that is written now */
    bool busy;                  /* somebody writes, or it is closed */
    uint32_t number;            /* of this ring in the process */
    uint32_t oldest;            /* number of the first one whose rows it took over, or its own */
    uint32_t blocks, block_size;
    uint64_t head; /* sequence of `block` */
    uint64_t rows; /* written so far, those included that were taken over */
    size_t mapped;
    int fd;         /* -1: given up */
    uint64_t inode; /* of fd, since the program may close descriptors it doesn't know */
};

/* The place of a row in a ring, for what is known of it only later. */
struct ring_ticket {
    uint64_t sequence; /* of its block; 0: nowhere */
    uint64_t row;      /* how many were written before it */
    uint32_t offset;   /* in the block's rows */
    uint32_t ring;     /* ring.number */
};

/* Makes a ring, all its memory there already, sealed against changes of its size and against other
 * writers. size: bytes of rows, RING_SIZE_MIN to RING_SIZE_MAX, rounded to whole blocks. now: [s]
 * since 1970. 0, or -errno: -EFBIG the process may have no file of that size (RLIMIT_FSIZE),
 * -ENOMEM (also if the program would be left with little), -ENODATA how much it would be left with
 * can't be found out and the size is above the rule, -EMFILE, -EINVAL. */
int ring_new(const struct ring_layout *layout, uint64_t size, double now, struct ring **out);
/* Gives up this process's share of it, after fork too, and the descriptor if it is still ours.
 * Nobody may look at it any more. NULL is fine. */
void ring_free(struct ring *ring);

/* Ends all writing: whoever still has the ring in hand drops his rows. Waits for a row that is
 * being written, for at most about 10 ms; then false, and nothing has changed. */
bool ring_close(struct ring *ring);
/* Appends all rows of `from`, which is closed and of the same layout, oldest first, as far as
 * they fit; tickets for them are good for `ring`. Of `from` only what its late writers look at
 * remains, until ring_free(). */
void ring_take_over(struct ring *ring, struct ring *from);

/* Room for a row of `size` bytes, a multiple of 8 and at most RING_ROW_MAX; its size is set. Until
 * ring_end() the ring is the caller's. NULL: the row is dropped. */
struct ring_row *ring_begin(struct ring *ring, uint32_t size);
/* Publishes it. ticket may be NULL. */
void ring_end(struct ring *ring, struct ring_ticket *ticket);
/* Counts rows that were dropped before anybody asked for room. */
void ring_lose(struct ring *ring, uint64_t rows);
/* Sets words of a row that is published, from `column` on, the last one first. false: it has been
 * overwritten, or the ring is busy. */
bool ring_patch_words(struct ring *ring, const struct ring_ticket *ticket, unsigned column,
                      const uint64_t *words, unsigned count);

static inline bool ring_patch(struct ring *ring, const struct ring_ticket *ticket, unsigned column,
                              uint64_t word)
{
    return ring_patch_words(ring, ticket, column, &word, 1);
}

/* ---- for the generated writers (schema/generate) ---- */

/* What is left of a text that is too long: whole characters, if it is UTF-8. */
uint32_t ring_text_cut(const char *bytes);

static inline uint32_t ring_text_size(const struct ring_text *text)
{
    if (!text->bytes)
        return 0;
    return text->size <= RING_TEXT_MAX ? (uint32_t)text->size : ring_text_cut(text->bytes);
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
static inline uint32_t ring_put_text(struct ring_row *row, unsigned column,
                                     const struct ring_text *text, uint32_t offset)
{
    uint32_t size = ring_text_size(text);

    if (!text->bytes) {
        row->words[column] = 0;
        return offset;
    }
    memcpy((char *)row + offset, text->bytes, size);
    row->words[column] =
        RING_TEXT_WORD(offset, size | (text->size > RING_TEXT_MAX ? RING_TEXT_CUT : 0));
    return offset + size;
}
