/* The table tables: those of the schema, and how much of each the process has recorded. */
#include "fs/tables/scene.h"

#include "fs/recording/recording.h"
#include "schema/schema.h"

static void add_counts(struct recording *recording, enum recorded table, struct rows *rows)
{
    struct ring_counts counts;

    struct ring_reader *ring = recording_ring(recording, table);
    if (!ring)
        return;
    ring_reader_count(ring, &counts);
    rows_integer(rows, TABLES_KEPT, (int64_t)counts.kept);
    rows_integer(rows, TABLES_LOST, (int64_t)counts.lost);
    ring_reader_unref(ring);
}

static int fill(struct scene *scene, const struct use *use, struct rows *rows)
{
    bool counted = use_wants(use, TABLES_KEPT) || use_wants(use, TABLES_LOST);

    for (size_t i = 0; i < scene->tables->n; i++) {
        const struct table *table = &scene->tables->items[i];
        rows_add(rows);
        rows_text(rows, TABLES_NAME, table->name);
        rows_text(rows, TABLES_COMMENT, table->comment);
        rows_text(rows, TABLES_SOURCE, table->source);
        rows_integer(rows, TABLES_COLUMNS, table->ncolumns);
        if (counted && scene->recording && table->recorded >= 0)
            add_counts(scene->recording, (enum recorded)table->recorded, rows);
    }
    return 0;
}

const struct row_source tables_rows = {.fill = fill, .recorded = true};
