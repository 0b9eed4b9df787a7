/* What came in a ring since somebody looked, copied out of it. Where a ring isn't to be decoded in
 * the process that wants its rows, another one does that and sends what it has written here: then
 * all of it is checked again, and nothing but that copy is touched. */
#pragma once

#include "fs/base/text.h"
#include "fs/recording/ring_reader.h"

#define RING_COPIES_MAX 16         /* at once */
#define RING_COPY_BYTES (4u << 20) /* of one ring, and a row: more is for the next time */

/* Where a ring's writer is: its numbers, as they lie there. Whoever decodes it makes a position of
 * them; two that differ say that something came. */
struct ring_mark {
    uint64_t inode;
    uint64_t sequence, first; /* of the newest block; 0: none yet */
    uint64_t used;
    uint64_t dropped;
};

/* All bytes are defined. */
struct ring_ask {
    uint64_t serial;         /* of the question, which the answer has, too */
    uint32_t table;          /* enum recorded */
    uint32_t goes_on;        /* 1: behind what the one of that table before it has copied */
    double since;            /* of the ring that was followed (ring_reader_since()); 0: none yet */
    struct ring_position at; /* in that */
    struct ring_mark mark;   /* where to begin in another one; zero: with its first row */
    uint64_t most;           /* rows: of more the last ones, UINT64_MAX: all; 0: counts alone */
};

struct ring_told {
    uint64_t serial;
    uint32_t is_there;
    uint32_t more; /* 1: not all was copied */
    double since;
    struct ring_position begin; /* as asked; of another ring than that, from which no row is copied,
                                   where to begin */
    uint64_t dropped;           /* rows that could not be written */
    struct ring_counts counts;
    uint64_t size;  /* of all blocks, bytes */
    uint64_t bytes; /* of the rows, with what stands in front of each */
};

/* What was asked of one ring, and the answer. */
struct ring_copy {
    struct ring_ask ask;
    struct ring_told told;
    const char *rows; /* belong to the text of the answer */
};

/* Adds the answer about one ring; NULL: there is none. behind: where the one of that table before
 * ended, and this one does. -ENOMEM. */
int ring_copy_write(struct ring_reader *ring, const struct ring_ask *ask,
                    struct ring_position *behind, struct text *out);
/* Reads n answers, which copies[i].rows point into, and checks all of them. -EPROTO: nobody who
 * decodes says that. */
int ring_copies_read(struct ring_copy *copies, size_t n, const struct text *answer);
/* Passes its rows as ring_reader_follow() does, and moves *at, which is told.begin. Stops behind
 * the row for which the follower returns anything but 0, and returns that. */
int ring_copy_pass(const struct ring_copy *copy, struct ring_position *at,
                   const struct ring_follower *follower);
