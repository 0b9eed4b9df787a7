/* The rows of one table, as its source adds them: only the columns that the statement uses are
 * kept, each value as one word. Their memory is SQLite's, so that it counts against what the
 * statement may take (heap.h). */
#pragma once

#include "fs/base/text.h"
#include "fs/sql/texts.h"

#include <stdbool.h>

#define TABLE_COLUMNS_MAX 48
#define ROWS_LEAD 4 /* host, pid, rank; of what was recorded also ended */
#define ROWS_SLOTS_MAX (TABLE_COLUMNS_MAX + ROWS_LEAD)
#define ROWS_MAX (16u << 20) /* rows of one table; memory ends it earlier, mostly */
#define ROWS_NULL INT64_MIN  /* in an INTEGER column */

struct table;
enum column_type { COLUMN_INTEGER, COLUMN_REAL, COLUMN_TEXT };

/* What stands in front of each row, where there are rows of many processes. */
struct rows_front {
    const char *host; /* lives as long as rows are added */
    int64_t pid;
    int64_t rank; /* ROWS_NULL: none */
    double ended; /* [s] since 1970; NaN: it lives */
};

struct rows {
    /* where a column's word is in a row; ROWS_UNUSED: it is not kept */
    uint8_t slots[TABLE_COLUMNS_MAX];
    uint8_t types[ROWS_SLOTS_MAX]; /* enum column_type, by slot */
    unsigned width;                /* words of a row */
    unsigned lead;                 /* of them, those in front */
    const struct rows_front *front;
    uint64_t blank[ROWS_SLOTS_MAX]; /* a row to begin with */
    /* row after row. INTEGER: the number, or ROWS_NULL; REAL: its bits, NaN is NULL; TEXT: its
     * number among the column's, 0 is NULL */
    uint64_t *words;
    struct texts *texts; /* by slot */
    size_t n, alloc;     /* rows */
    int error;           /* the first one: -ENOMEM or -EFBIG; later additions
                            are lost */
};

#define ROWS_UNUSED 255

/* Begins rows of a table, of whose columns those in the mask are kept. front: of each row; NULL:
 * there is nothing in front. It must live as long as rows are added. */
void rows_init(struct rows *rows, const struct table *table, uint64_t used,
               const struct rows_front *front);
void rows_deinit(struct rows *rows);
/* Forgets all rows. */
void rows_clear(struct rows *rows);

/* Begins a row in which every column is NULL. The following set a column of it; a column that isn't
 * kept, or a text that is NULL, is passed over. */
void rows_add(struct rows *rows);
void rows_integer(struct rows *rows, unsigned column, int64_t value);
void rows_real(struct rows *rows, unsigned column, double value);
/* Copies it. */
void rows_text(struct rows *rows, unsigned column, const char *value);
void rows_bytes(struct rows *rows, unsigned column, const char *bytes, size_t size);
/* Copies what the text holds, and empties that for the next one. */
void rows_take(struct rows *rows, unsigned column, struct text *text);

/* Makes n rows, of a table without any, whose words and texts are then filled in by who asks, as
 * they are in other rows of the same shape. -ENOMEM, -EFBIG. */
int rows_make(struct rows *rows, size_t n);
/* Adds all rows of others of the same table and columns, which may be wrong: -EPROTO where a text's
 * number isn't there. Returns the error of these, too. */
int rows_copy(struct rows *rows, const struct table *table, const struct rows *from);
/* Moves all rows of another table of the same shape behind these, and leaves it empty. */
void rows_append(struct rows *rows, struct rows *from);

static inline uint64_t rows_word(const struct rows *rows, size_t row, unsigned slot)
{
    return rows->words[row * rows->width + slot];
}
