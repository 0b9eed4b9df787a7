/* The table tables: those of the schema, and how much of each the process has recorded. */
#include "fs/tables/scene.h"

#include "fs/recording/recording.h"
#include "schema/schema.h"

static int add_counts(struct recording *recording, enum recorded table, struct rows *rows)
{
    struct ring_counts counts;
    uint64_t size;

    int r = recording_count(recording, table, &counts, &size);
    if (r <= 0)
        return r;
    rows_integer(rows, TABLES_KEPT, (int64_t)counts.kept);
    rows_integer(rows, TABLES_LOST, (int64_t)counts.lost);
    return 0;
}

static int fill(struct scene *scene, const struct use *use, struct rows *rows)
{
    bool counted = use_wants(use, TABLES_KEPT) || use_wants(use, TABLES_LOST);
    int r = 0;

    for (size_t i = 0; i < scene->tables->n && r == 0; i++) {
        const struct table *table = &scene->tables->items[i];
        rows_add(rows);
        rows_text(rows, TABLES_NAME, table->name);
        rows_text(rows, TABLES_COMMENT, table->comment);
        rows_text(rows, TABLES_SOURCE, table->source);
        rows_integer(rows, TABLES_COLUMNS, table->ncolumns);
        if (counted && scene->recording && table->recorded >= 0)
            r = add_counts(scene->recording, (enum recorded)table->recorded, rows);
    }
    return r;
}

const struct row_source tables_rows = {.fill = fill, .recorded = true};
