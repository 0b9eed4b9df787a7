/* The table tables. */
#include "fs/sql/scene.h"

#include "schema/schema.h"

static int fill(struct scene *scene, const struct use *use, struct rows *rows)
{
    for (size_t i = 0; i < scene->tables->n; i++) {
        const struct table *table = &scene->tables->items[i];
        rows_add(rows);
        rows_text(rows, TABLES_NAME, table->name);
        rows_text(rows, TABLES_COMMENT, table->comment);
        rows_text(rows, TABLES_SOURCE, table->source);
        rows_integer(rows, TABLES_COLUMNS, table->ncolumns);
    }
    return 0;
}

const struct row_source tables_rows = {.fill = fill, .catalog = true};
