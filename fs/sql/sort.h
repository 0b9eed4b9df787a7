/* The order of rows by some of their columns, as ORDER BY has it: NULL comes first, texts go
 * by their bytes, rows that are the same stay as they were. What a statement orders or
 * groups by is mostly sorted already (a time), or has few values (a name): both take a
 * fraction of what SQLite's sorter does. */
#pragma once

#include "fs/sql/rows.h"

#define ORDER_KEYS_MAX 8

struct stop;

struct sort_key {
    uint8_t slot;
    bool descending;
};

struct sort {
    struct sort_key keys[ORDER_KEYS_MAX];
    unsigned n;        /* of the keys */
    uint32_t *rows;    /* NULL: as they lie */
    struct sort *next; /* for whoever keeps several */
};

/* Sorts all rows, which don't change any more. -ENOMEM, or what stop_reason() says. */
int sort_new(const struct rows *rows, const struct sort_key *keys, unsigned n,
             const struct stop *stop, struct sort **out);
void sort_free(struct sort *order);
