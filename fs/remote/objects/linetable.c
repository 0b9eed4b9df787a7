#include "fs/remote/objects/linetable.h"

#include "fs/base/array.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

enum linetable_format linetable_format_of(uint32_t version)
{
    return version >= 0x030b0000   ? LINETABLE_LOCATIONS
           : version >= 0x030a0000 ? LINETABLE_3_10
                                   : LINETABLE_LNOTAB;
}

struct decoder {
    struct linetable *table;
    size_t alloc;
    bool failed;
};

static bool same_position(const struct linetable_row *a, const struct linetable_row *b)
{
    return a->line == b->line && a->lines == b->lines && a->col == b->col &&
           a->end_col == b->end_col;
}

/* Holds from its `start` on. */
static void add_position(struct decoder *d, struct linetable_row row)
{
    struct linetable *t = d->table;

    if (t->n && t->rows[t->n - 1].start == row.start) {
        t->rows[t->n - 1] = row; /* an empty range is overruled */
        return;
    }
    if (t->n && same_position(&t->rows[t->n - 1], &row))
        return;
    if (t->n == d->alloc) {
        size_t alloc = d->alloc ? d->alloc * 2 : 16;
        void *rows = realloc(t->rows, alloc * sizeof *t->rows);
        if (!rows) {
            d->failed = true;
            return;
        }
        t->rows = rows;
        d->alloc = alloc;
    }
    t->rows[t->n++] = row;
}

/* Adds a row where there are only lines. */
static void add_row(struct decoder *d, uint32_t start, int32_t line)
{
    add_position(d, (struct linetable_row){.start = start, .line = line, .col = -1, .end_col = -1});
}

/* Wraps like the interpreter's own arithmetic would, without undefined behaviour. */
static int32_t plus(int32_t line, int32_t delta)
{
    return (int32_t)((uint32_t)line + (uint32_t)delta);
}

static void decode_lnotab(struct decoder *d, const uint8_t *p, size_t size)
{
    uint32_t addr = 0;
    int32_t line = d->table->first_line;

    add_row(d, 0, line);
    for (size_t i = 0; i + 1 < size; i += 2) {
        addr += p[i];
        line = plus(line, (int8_t)p[i + 1]);
        add_row(d, addr, line);
    }
}

static void decode_3_10(struct decoder *d, const uint8_t *p, size_t size)
{
    uint32_t addr = 0;
    int32_t line = d->table->first_line;

    for (size_t i = 0; i + 1 < size; i += 2) {
        int8_t delta = (int8_t)p[i + 1];
        if (delta != -128)
            line = plus(line, delta);
        if (p[i])
            add_row(d, addr, delta == -128 ? LINETABLE_NO_LINE : line);
        addr += p[i];
    }
}

struct cursor {
    const uint8_t *p, *end;
};

/* Six bits a byte, least significant first; bit 6 says that more follow. */
static uint32_t read_varint(struct cursor *c)
{
    uint32_t value = 0;

    for (unsigned shift = 0; c->p < c->end; shift += 6) {
        uint8_t byte = *c->p++;
        if (shift < 32)
            value |= (uint32_t)(byte & 63) << shift;
        if (!(byte & 64))
            break;
    }
    return value;
}

static int32_t read_signed_varint(struct cursor *c)
{
    uint32_t value = read_varint(c);
    return value & 1 ? -(int32_t)(value >> 1) : (int32_t)(value >> 1);
}

static int16_t read_byte(struct cursor *c) { return c->p < c->end ? *c->p++ : -1; }

/* A column that is kept as one more than it is. */
static int16_t read_column(struct cursor *c)
{
    uint32_t value = read_varint(c);
    return value <= INT16_MAX ? (int16_t)(value - 1) : -1;
}

enum { /* codes of an entry's first byte: enum _PyCodeLocationInfoKind */
       CODE_ONE_LINE0 = 10,
       CODE_ONE_LINE2 = 12,
       CODE_NO_COLUMNS = 13,
       CODE_LONG = 14,
       CODE_NONE = 15,
};

static void decode_locations(struct decoder *d, const uint8_t *p, size_t size)
{
    struct cursor c = {p, p + size};
    uint32_t addr = 0;
    int32_t line = d->table->first_line;

    while (c.p < c.end) {
        uint8_t head = *c.p++;
        unsigned code = head >> 3 & 15, units = (head & 7) + 1u;
        struct linetable_row row = {.start = addr, .col = -1, .end_col = -1};
        if (code == CODE_LONG || code == CODE_NO_COLUMNS)
            line = plus(line, read_signed_varint(&c));
        if (code == CODE_LONG) {
            uint32_t lines = read_varint(&c);
            row.lines = lines <= UINT16_MAX ? (uint16_t)lines : 0;
            row.col = read_column(&c);
            row.end_col = read_column(&c);
        } else if (code >= CODE_ONE_LINE0 && code <= CODE_ONE_LINE2) {
            line = plus(line, (int32_t)(code - CODE_ONE_LINE0));
            row.col = read_byte(&c);
            row.end_col = read_byte(&c);
        } else if (code < CODE_ONE_LINE0) {
            int16_t second = read_byte(&c);
            if (second >= 0) {
                row.col = (int16_t)(code << 3 | ((unsigned)second >> 4 & 7));
                row.end_col = (int16_t)(row.col + (second & 15));
            }
        }
        row.line = code == CODE_NONE ? LINETABLE_NO_LINE : line;
        add_position(d, row);
        addr += units * 2;
    }
}

int linetable_decode(enum linetable_format format, const uint8_t *bytes, size_t size,
                     int first_line, struct linetable *out)
{
    struct linetable table = {.first_line = first_line};
    struct decoder d = {.table = &table};
    static const uint8_t none;

    if (!size)
        bytes = &none; /* it may be NULL */
    if (size > LINETABLE_BYTES_MAX)
        return -E2BIG;
    if (format == LINETABLE_LNOTAB)
        decode_lnotab(&d, bytes, size);
    else if (format == LINETABLE_3_10)
        decode_3_10(&d, bytes, size);
    else
        decode_locations(&d, bytes, size);
    if (d.failed) {
        linetable_deinit(&table);
        return -ENOMEM;
    }
    *out = table;
    return 0;
}

void linetable_deinit(struct linetable *table)
{
    if (!table)
        return;
    free(table->rows);
    *table = (struct linetable){0};
}

/* The row of the instruction at an offset, or NULL. */
static const struct linetable_row *find_row(const struct linetable *table, int64_t offset)
{
    if (offset < 0)
        return NULL;
    size_t behind = LOWER_BOUND(table->n, i, table->rows[i].start <= (uint64_t)offset);
    return behind ? &table->rows[behind - 1] : NULL;
}

int linetable_line(const struct linetable *table, int64_t offset)
{
    const struct linetable_row *row = find_row(table, offset);
    return row ? row->line : table->first_line;
}

struct position linetable_position(const struct linetable *table, int64_t offset)
{
    const struct linetable_row *row = find_row(table, offset);

    if (!row)
        return (struct position){table->first_line, table->first_line, -1, -1};
    return (struct position){
        .line = row->line,
        .end_line = row->line < 0 ? LINETABLE_NO_LINE : plus(row->line, row->lines),
        .col = row->col,
        .end_col = row->end_col,
    };
}
