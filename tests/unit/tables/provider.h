/* Tables that only tests have, and a provider of their rows. */
#pragma once

#include "fs/sql/engine.h"

extern const struct tables colours_tables;

/* What the last statement used, for tests of what is pushed down. */
struct seen {
    int fills;
    struct use uses[4]; /* in the order of colours_tables */
    bool used[4];
};

static inline int provide(void *arg, struct wanted *const *wanted, size_t n,
                          const struct stop *stop, struct text *why)
{
    struct seen *seen = arg;

    seen->fills++;
    for (size_t i = 0; i < n; i++) {
        const struct table *table = wanted[i]->table;
        seen->uses[table - colours_tables.items] = wanted[i]->use;
        seen->used[table - colours_tables.items] = true;
        rows_init(&wanted[i]->rows, table, wanted[i]->use.columns, NULL);
        int r = table->rows->fill(NULL, &wanted[i]->use, &wanted[i]->rows);
        if (r < 0)
            return r;
    }
    return 0;
}
