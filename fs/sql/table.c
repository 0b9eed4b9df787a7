#include "fs/sql/table.h"

#include <string.h>

const struct table *tables_find(const struct tables *tables, const char *name)
{
    for (size_t i = 0; i < tables->n; i++)
        if (!strcmp(tables->items[i].name, name))
            return &tables->items[i];
    return NULL;
}

const char *column_type_name(enum column_type type)
{
    static const char *const names[] = {
        [COLUMN_INTEGER] = "INTEGER",
        [COLUMN_REAL] = "REAL",
        [COLUMN_TEXT] = "TEXT",
    };
    return names[type];
}
