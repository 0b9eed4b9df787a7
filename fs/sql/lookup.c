#include "fs/sql/lookup.h"

#include <errno.h>
#include <sqlite3.h>
#include <string.h>

static size_t bucket_of(const struct lookup *lookup, const int64_t *values)
{
    uint64_t hash = 0;

    for (unsigned i = 0; i < lookup->n; i++) {
        hash = (hash ^ (uint64_t)values[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return hash & (lookup->buckets - 1);
}

/* The values of a row; false: one is NULL, and no value is equal to it. */
static bool values_of(const struct lookup *lookup, const struct rows *rows, size_t row,
                      int64_t *values)
{
    for (unsigned i = 0; i < lookup->n; i++) {
        unsigned slot = lookup->slots[i];
        values[i] = (int64_t)rows_word(rows, row, slot);
        if (values[i] == (rows->types[slot] == COLUMN_TEXT ? 0 : ROWS_NULL))
            return false;
    }
    return true;
}

int lookup_new(const struct rows *rows, const uint8_t *slots, unsigned n, struct lookup **out)
{
    int64_t values[LOOKUP_COLUMNS_MAX];

    struct lookup *lookup = sqlite3_malloc64(sizeof *lookup);
    if (!lookup)
        return -ENOMEM;
    *lookup = (struct lookup){.n = n, .buckets = 16};
    memcpy(lookup->slots, slots, n);
    while (lookup->buckets < rows->n)
        lookup->buckets *= 2;
    lookup->heads = sqlite3_malloc64(lookup->buckets * sizeof *lookup->heads);
    lookup->nexts = sqlite3_malloc64((rows->n + 1) * sizeof *lookup->nexts);
    if (!lookup->heads || !lookup->nexts) {
        lookup_free(lookup);
        return -ENOMEM;
    }
    memset(lookup->heads, 0, lookup->buckets * sizeof *lookup->heads);
    for (size_t row = rows->n; row-- > 0;) {
        if (!values_of(lookup, rows, row, values))
            continue;
        size_t bucket = bucket_of(lookup, values);
        lookup->nexts[row] = lookup->heads[bucket];
        lookup->heads[bucket] = (uint32_t)row + 1;
    }
    *out = lookup;
    return 0;
}

void lookup_free(struct lookup *lookup)
{
    if (!lookup)
        return;
    sqlite3_free(lookup->heads);
    sqlite3_free(lookup->nexts);
    sqlite3_free(lookup);
}

static size_t go_on(const struct lookup *lookup, const struct rows *rows, const int64_t *values,
                    uint32_t at)
{
    int64_t there[LOOKUP_COLUMNS_MAX];

    for (; at; at = lookup->nexts[at - 1])
        if (values_of(lookup, rows, at - 1, there) &&
            !memcmp(there, values, lookup->n * sizeof *values))
            return at - 1;
    return rows->n;
}

size_t lookup_first(const struct lookup *lookup, const struct rows *rows, const int64_t *values)
{
    return go_on(lookup, rows, values, lookup->heads[bucket_of(lookup, values)]);
}

size_t lookup_next(const struct lookup *lookup, const struct rows *rows, const int64_t *values,
                   size_t row)
{
    return go_on(lookup, rows, values, lookup->nexts[row]);
}
