/* The order of rows by some of their columns, as ORDER BY has it: NULL comes first, texts go
 * by their bytes, rows that are the same stay as they were. What a statement orders or
 * groups by is mostly sorted already (a time), or has few values (a name): both take a
 * fraction of what SQLite's sorter does. */
#pragma once

#include "fs/sql/rows.h"

#define ORDER_KEYS_MAX 8

struct stop;

struct order_key {
    uint8_t slot;
    bool descending;
};

struct order {
    struct order_key keys[ORDER_KEYS_MAX];
    unsigned n;         /* of the keys */
    uint32_t *rows;     /* NULL: as they lie */
    struct order *next; /* for whoever keeps several */
};

/* Of all rows, which don't change any more. -ENOMEM, or what stop_reason() says. */
int order_new(const struct rows *rows, const struct order_key *keys, unsigned n,
              const struct stop *stop, struct order **out);
void order_free(struct order *order);
