#include "fs/remote/frames/linetable.h"

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

/* From byte `start` of the bytecode on, the line is `line`. */
static void add_row(struct decoder *d, uint32_t start, int32_t line)
{
    struct linetable *t = d->table;

    if (t->n && t->rows[t->n - 1].start == start) {
        t->rows[t->n - 1].line = line; /* an empty range is overruled */
        return;
    }
    if (t->n && t->rows[t->n - 1].line == line)
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
    t->rows[t->n++] = (struct linetable_row){start, line};
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

static void skip(struct cursor *c, size_t n)
{
    c->p += (size_t)(c->end - c->p) < n ? (size_t)(c->end - c->p) : n;
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
        if (code == CODE_LONG || code == CODE_NO_COLUMNS)
            line = plus(line, read_signed_varint(&c));
        if (code == CODE_LONG) {
            read_varint(&c); /* end line, column, end column */
            read_varint(&c);
            read_varint(&c);
        } else if (code >= CODE_ONE_LINE0 && code <= CODE_ONE_LINE2) {
            line = plus(line, (int32_t)(code - CODE_ONE_LINE0));
            skip(&c, 2);
        } else if (code < CODE_ONE_LINE0) {
            skip(&c, 1);
        }
        add_row(d, addr, code == CODE_NONE ? LINETABLE_NO_LINE : line);
        addr += units * 2;
    }
}

int linetable_decode(enum linetable_format format, const uint8_t *bytes, size_t size,
                     int first_line, struct linetable *out)
{
    struct linetable table = {.first_line = first_line};
    struct decoder d = {.table = &table};

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

int linetable_line(const struct linetable *table, int64_t offset)
{
    size_t low = 0, high = table->n;

    if (offset < 0)
        return table->first_line;
    while (low < high) { /* the first row that begins behind offset */
        size_t mid = low + (high - low) / 2;
        if (table->rows[mid].start <= (uint64_t)offset)
            low = mid + 1;
        else
            high = mid;
    }
    return low ? table->rows[low - 1].line : table->first_line;
}
