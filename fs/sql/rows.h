/* The rows of one table, as its source adds them: only the columns that the statement uses are
 * kept. Their memory is SQLite's, so that it counts against what the statement may take (heap.h). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TABLE_COLUMNS_MAX 48
#define ROWS_LEAD 3                /* host, pid, rank */
#define ROWS_MAX (16u << 20)       /* rows of one table; memory ends it earlier, mostly */

enum cell_type { CELL_NULL, CELL_INTEGER, CELL_REAL, CELL_TEXT };

struct cell {
    enum cell_type type;
    uint32_t size;         /* of the text, bytes */
    union {
        int64_t integer;
        double real;
        const char *text;  /* UTF-8, not terminated; owned by the rows */
    };
};

struct rows_chunk;

struct rows {
    uint8_t slots[TABLE_COLUMNS_MAX]; /* of a column among the cells of a row; ROWS_UNUSED: it is
                                         not kept */
    unsigned width;                   /* cells of a row, the first lead of them are the same in all */
    unsigned lead;
    struct cell front[ROWS_LEAD];
    const char *shared[ROWS_LEAD];    /* the texts of these, among the rows' own */
    struct cell *cells;
    size_t n, alloc;                  /* rows */
    struct rows_chunk *chunks;        /* what texts lie in */
    int error;                        /* the first one: -ENOMEM or -EFBIG; later additions are lost */
};

#define ROWS_UNUSED 255

/* Begins a table of ncolumns, of which those in the mask are kept, with `lead` cells in front; texts
 * of these must live as long as rows are added. */
void rows_init(struct rows *rows, unsigned ncolumns, uint64_t used, const struct cell *front,
               unsigned lead);
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

/* Moves all rows of another table of the same shape behind these, and leaves it empty. */
void rows_append(struct rows *rows, struct rows *from);

/* The cell of a row by its place in it. */
static inline const struct cell *rows_cell(const struct rows *rows, size_t row, unsigned slot)
{
    return &rows->cells[row * rows->width + slot];
}
