/* How recorded rows lie in memory that the agent and the daemon share: a ring of blocks in a memfd.
 *
 * One process writes, under a lock of its own that no reader knows; any number of readers copy
 * whole blocks without any lock. A block bears its ordinal number, `sequence`, which is 0 while the
 * block is made empty for new rows: a copy is good if the number was the same before and after. A
 * row is published by the growth of `used` and never changes after that, but for single words that
 * a table's writer completes later (the duration of a span, say), which are read whole or not at
 * all. So readers see no torn row, and a writer that is killed anywhere leaves none.
 *
 * The reader takes it all for hostile: it may be scribbled over at any time. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define RING_MAGIC 0x474e4952464250ull /* "PBFRING" */
#define RING_VERSION 1
#define RING_HEADER_SIZE 4096u    /* the first block follows */
#define RING_SIZE_MIN (64u << 10) /* bytes of all blocks */
#define RING_SIZE_MAX (1u << 30)
#define RING_SIZE_DEFAULT (4u << 20)
#define RING_BLOCK_MIN (16u << 10) /* a power of two */
#define RING_BLOCK_MAX (64u << 10)
#define RING_ROW_MAX (RING_BLOCK_MIN - (unsigned)sizeof(struct ring_block))
#define RING_TEXT_MAX 2048u /* bytes of one text of a row */

/* What is in a ring. */
struct ring_layout {
    const char *name;  /* of the table; less than 32 bytes */
    const char *types; /* of its columns: 'I', 'R' or 'T' each */
    unsigned columns;
    uint64_t hash; /* of the columns' names and types */
};

struct ring_header {
    uint64_t magic;
    uint32_t version; /* RING_VERSION */
    int32_t pid;      /* of the writer, as it knows itself */
    uint64_t layout;  /* ring_layout.hash */
    char table[32];
    uint64_t size; /* of all blocks, bytes */
    uint32_t block_size;
    uint32_t blocks;
    uint64_t head;    /* sequence of the block that is written; 0: none yet */
    uint64_t dropped; /* rows that could not be written */
    double since;     /* [s] since 1970, when it was made */
};

struct ring_block {
    uint64_t sequence; /* from 1; it lies at slot (sequence - 1) % blocks */
    uint64_t first;    /* how many rows had been written before its first one */
    uint32_t used;     /* bytes of rows that are published */
    uint32_t zero;
    uint64_t more; /* always 0 */
    char rows[];
};

/* A row: a word for each column, then the texts' bytes. A multiple of 8 in size. */
struct ring_row {
    uint32_t size; /* of all of it */
    uint32_t zero;
    uint64_t words[]; /* INTEGER: RING_NULL_INTEGER is NULL; REAL: NaN is NULL; TEXT: below */
};

#define RING_NULL_INTEGER INT64_MIN
/* A text's word: its offset from the row's start, its size above that. 0: NULL. */
#define RING_TEXT_WORD(offset, size) ((uint64_t)(size) << 32 | (offset))
#define RING_TEXT_CUT 0x80000000u /* of the size: there was more than RING_TEXT_MAX */

/* A text, before it is in a row. bytes NULL: NULL. */
struct ring_text {
    const char *bytes;
    size_t size;
};

_Static_assert(sizeof(struct ring_header) == 96, "ring");
_Static_assert(sizeof(struct ring_block) == 32, "ring");
_Static_assert(sizeof(struct ring_row) == 8, "ring");
