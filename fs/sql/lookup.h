/* Finds the rows in which some INTEGER or TEXT columns have given values: what joins ask again and
 * again. A text's value is its number (texts.h). */
#pragma once

#include "fs/sql/rows.h"

#define LOOKUP_COLUMNS_MAX 4

struct lookup {
    uint8_t slots[LOOKUP_COLUMNS_MAX];
    unsigned n;              /* of the slots, at least 1 */
    uint32_t *heads, *nexts; /* row + 1, ascending; 0: no more */
    size_t buckets;          /* a power of two */
    struct lookup *next;     /* for whoever keeps several */
};

/* Over all rows, which don't change any more. -ENOMEM. */
int lookup_new(const struct rows *rows, const uint8_t *slots, unsigned n, struct lookup **out);
void lookup_free(struct lookup *lookup);

/* The rows that have these values, ascending: the first one, and the one that
 * follows `row`. rows->n: no more. */
size_t lookup_first(const struct lookup *lookup, const struct rows *rows, const int64_t *values);
size_t lookup_next(const struct lookup *lookup, const struct rows *rows, const int64_t *values,
                   size_t row);
