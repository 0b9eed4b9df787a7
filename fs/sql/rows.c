#include "fs/sql/rows.h"

#include <errno.h>
#include <sqlite3.h>
#include <string.h>

#define CHUNK_MIN 512
#define CHUNK_MAX (64u << 10)

struct rows_chunk {
    struct rows_chunk *next;
    size_t used, size;
    char bytes[];
};

void rows_init(struct rows *rows, unsigned ncolumns, uint64_t used, const struct cell *front,
               unsigned lead)
{
    *rows = (struct rows){.width = lead, .lead = lead};
    memset(rows->slots, ROWS_UNUSED, sizeof rows->slots);
    for (unsigned i = 0; i < lead; i++)
        rows->front[i] = front[i];
    for (unsigned i = 0; i < ncolumns; i++)
        if (used >> i & 1)
            rows->slots[i] = (uint8_t)rows->width++;
}

static void free_chunks(struct rows *rows)
{
    while (rows->chunks) {
        struct rows_chunk *next = rows->chunks->next;
        sqlite3_free(rows->chunks);
        rows->chunks = next;
    }
}

void rows_deinit(struct rows *rows)
{
    free_chunks(rows);
    sqlite3_free(rows->cells);
    rows->cells = NULL;
    rows->n = rows->alloc = 0;
}

void rows_clear(struct rows *rows)
{
    free_chunks(rows);
    rows->n = 0;
    rows->error = 0;
}

static bool reserve(struct rows *rows, size_t n)
{
    size_t alloc = rows->alloc ? rows->alloc : 64;

    if (rows->error)
        return false;
    if (n > ROWS_MAX) {
        rows->error = -EFBIG;
        return false;
    }
    if (n <= rows->alloc)
        return true;
    while (alloc < n)
        alloc *= 2;
    /* a statement may use no column at all: count(*) */
    struct cell *cells = sqlite3_realloc64(rows->cells, alloc * (rows->width + 1) * sizeof *cells);
    if (!cells) {
        rows->error = -ENOMEM;
        return false;
    }
    rows->cells = cells;
    rows->alloc = alloc;
    return true;
}

static char *take(struct rows *rows, size_t size)
{
    struct rows_chunk *chunk = rows->chunks;

    if (!chunk || chunk->size - chunk->used < size) {
        size_t room = !chunk ? CHUNK_MIN : chunk->size < CHUNK_MAX ? chunk->size * 2 : CHUNK_MAX;
        if (room < size)
            room = size;
        chunk = sqlite3_malloc64(sizeof *chunk + room);
        if (!chunk) {
            rows->error = -ENOMEM;
            return NULL;
        }
        *chunk = (struct rows_chunk){.next = rows->chunks, .size = room};
        rows->chunks = chunk;
    }
    char *bytes = chunk->bytes + chunk->used;
    chunk->used += size;
    return bytes;
}

/* The texts in front, which are the caller's, become the rows' own. */
static void own_front(struct rows *rows)
{
    for (unsigned i = 0; i < rows->lead; i++) {
        struct cell *cell = &rows->front[i];
        if (cell->type != CELL_TEXT)
            continue;
        char *copy = take(rows, cell->size);
        if (!copy)
            return;
        memcpy(copy, cell->text, cell->size);
        rows->shared[i] = copy;
    }
}

void rows_add(struct rows *rows)
{
    if (!rows->n)
        own_front(rows);
    if (!reserve(rows, rows->n + 1))
        return;
    struct cell *row = &rows->cells[rows->n++ * rows->width];
    for (unsigned i = 0; i < rows->width; i++)
        row[i] = i < rows->lead ? rows->front[i] : (struct cell){.type = CELL_NULL};
    for (unsigned i = 0; i < rows->lead; i++)
        if (row[i].type == CELL_TEXT)
            row[i].text = rows->shared[i];
}

/* The cell of a column in the last row; NULL: it isn't kept. */
static struct cell *last(struct rows *rows, unsigned column)
{
    unsigned slot = rows->slots[column];

    if (rows->error || !rows->n || slot == ROWS_UNUSED)
        return NULL;
    return &rows->cells[(rows->n - 1) * rows->width + slot];
}

void rows_integer(struct rows *rows, unsigned column, int64_t value)
{
    struct cell *cell = last(rows, column);
    if (cell)
        *cell = (struct cell){.type = CELL_INTEGER, .integer = value};
}

void rows_real(struct rows *rows, unsigned column, double value)
{
    struct cell *cell = last(rows, column);
    if (cell)
        *cell = (struct cell){.type = CELL_REAL, .real = value};
}

void rows_bytes(struct rows *rows, unsigned column, const char *bytes, size_t size)
{
    struct cell *cell = last(rows, column);
    char *copy;

    if (!cell || size > INT32_MAX || !(copy = take(rows, size)))
        return;
    memcpy(copy, bytes, size);
    *cell = (struct cell){.type = CELL_TEXT, .size = (uint32_t)size, .text = copy};
}

void rows_text(struct rows *rows, unsigned column, const char *value)
{
    if (value && rows->slots[column] != ROWS_UNUSED)
        rows_bytes(rows, column, value, strlen(value));
}

void rows_append(struct rows *rows, struct rows *from)
{
    struct rows_chunk **end = &rows->chunks;

    if (from->error && !rows->error)
        rows->error = from->error;
    if (from->n && reserve(rows, rows->n + from->n)) {
        memcpy(rows->cells + rows->n * rows->width, from->cells,
               from->n * from->width * sizeof *from->cells);
        rows->n += from->n;
        while (*end)
            end = &(*end)->next;
        *end = from->chunks;
        from->chunks = NULL;
    }
    rows_deinit(from);
}
