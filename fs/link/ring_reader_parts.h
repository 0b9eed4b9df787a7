/* What ring_reader.c (opening, counting, scanning) and ring_follow.c share. */
#pragma once

#include "fs/link/ring_reader.h"

#define COLUMNS_MAX 64
#define COUNT_MAX ((uint64_t)INT64_MAX) /* what SQL can say */

struct ring_reader {
    unsigned refs;
    const struct ring_layout *layout;
    const char *memory;
    size_t mapped;
    uint32_t block_size;
    uint32_t blocks;
    uint32_t batch;              /* bytes that are copied at once; some blocks at least */
    double since;
    uint32_t row_min;            /* bytes of a row whose texts are all NULL */
    unsigned n_texts;
    uint8_t texts[COLUMNS_MAX];  /* columns that are TEXT */
};

/* What a block held at one moment. */
struct held {
    const struct ring_block *block;
    uint64_t sequence;           /* 0: it had been overwritten */
    uint64_t first;
    uint32_t used;               /* bytes, within the block, a multiple of 8 */
    const char *copy;            /* of these; NULL: it was overwritten until then */
};

/* b is at most COUNT_MAX. */
static inline uint64_t count_add(uint64_t a, uint64_t b) { return a > COUNT_MAX - b ? COUNT_MAX : a + b; }

/* What the block of that sequence holds now; sequence 0: it isn't there. */
struct held ring_see(const struct ring_reader *reader, uint64_t sequence);
/* The blocks that may be there: how many, with sequences from *oldest on. */
uint32_t ring_extent(const struct ring_reader *reader, uint64_t *oldest);
/* Copies held->used bytes; sets held->copy. */
void ring_copy_block(struct held *held, uint64_t *to);
/* The rows of a copied block. *n: how many there are, *good: no bad one ended them early. */
int ring_pass_rows(const struct ring_reader *reader, const struct held *held,
                   int (*each)(void *arg, const struct ring_row *row), void *arg, uint64_t *n, bool *good);
