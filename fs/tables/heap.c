/* The table heap: objects by type (remote/heap/census.h). */
#include "fs/tables/scene.h"

#include "agent/base/cleanup.h"
#include "fs/remote/heap/census.h"
#include "schema/schema.h"

#include <errno.h>

static int unwanted(const void *arg) { return stop_reason(arg); }

static void add(struct rows *rows, const char *type, uint64_t count, uint64_t bytes)
{
    rows_add(rows);
    if (type)
        rows_text(rows, HEAP_TYPE, type);
    rows_integer(rows, HEAP_COUNT, (int64_t)count);
    rows_integer(rows, HEAP_BYTES, (int64_t)bytes);
}

static int fill(struct scene *scene, const struct use *use, struct rows *rows)
{
    _cleanup_(census_deinit) struct census census = {
        .scan = {.unwanted = unwanted, .unwanted_arg = scene->stop},
    };

    int r = census_take(scene->target, &census, scene->why);
    if (r < 0)
        return r;
    for (size_t i = 0; i < census.n && !rows->error; i++)
        add(rows, census.types[i].name, census.types[i].count, census.types[i].bytes);
    add(rows, NULL, census.blocks, census.block_bytes);
    if (census.scan.cut) {
        rows_add(rows);
        rows_text(rows, HEAP_TYPE, "[cut: the heap is too large to be read as a whole]");
    }
    return 0;
}

const struct row_source heap_rows = {.fill = fill};
