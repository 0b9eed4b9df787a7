/* The table columns. */
#include "fs/tables/scene.h"

#include "schema/schema.h"

static void add(const struct table *table, unsigned position, struct rows *rows)
{
    const struct column *column = &table->columns[position];

    rows_add(rows);
    rows_text(rows, COLUMNS_TABLE_NAME, table->name);
    rows_integer(rows, COLUMNS_POSITION, position);
    rows_text(rows, COLUMNS_NAME, column->name);
    rows_text(rows, COLUMNS_TYPE, column_type_name(column->type));
    rows_text(rows, COLUMNS_UNIT, column->unit);
    rows_text(rows, COLUMNS_COMMENT, column->comment);
}

static int fill(struct scene *scene, const struct use *use, struct rows *rows)
{
    for (size_t i = 0; i < scene->tables->n; i++)
        for (unsigned k = 0; k < scene->tables->items[i].ncolumns; k++)
            add(&scene->tables->items[i], k, rows);
    return 0;
}

const struct row_source columns_rows = {.fill = fill, .catalog = true};
