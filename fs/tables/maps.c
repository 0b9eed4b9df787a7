/* The table maps: /proc/PID/maps. */
#include "fs/tables/scene.h"

#include "agent/base/cleanup.h"
#include "fs/remote/memory/core.h"
#include "schema/schema.h"

#include <string.h>

static const char deleted[] = " (deleted)";

static void add(const struct mapping *m, struct rows *rows)
{
    const char perms[] = {m->readable ? 'r' : '-', m->writable ? 'w' : '-',
                          m->executable ? 'x' : '-', 0};
    size_t size = strlen(m->path), tail = sizeof deleted - 1;
    bool gone = size > tail && !strcmp(m->path + size - tail, deleted);

    rows_add(rows);
    rows_integer(rows, MAPS_START, (int64_t)m->start);
    rows_integer(rows, MAPS_SIZE, (int64_t)(m->end - m->start));
    rows_text(rows, MAPS_PERMS, perms);
    rows_integer(rows, MAPS_FILE_OFFSET, (int64_t)m->offset);
    rows_integer(rows, MAPS_INODE, (int64_t)m->inode);
    rows_integer(rows, MAPS_DELETED, gone);
    if (size)
        rows_bytes(rows, MAPS_PATH, m->path, gone ? size - tail : size);
}

static int fill(struct scene *scene, const struct use *use, struct rows *rows)
{
    _cleanup_(maps_deinit) struct maps maps = {0};

    int r = scene->target->core ? core_maps(scene->target->core, &maps)
                                : maps_read(scene->target->pid, &maps);
    for (size_t i = 0; r == 0 && i < maps.n && !rows->error; i++)
        add(&maps.items[i], rows);
    return r;
}

const struct row_source maps_rows = {.fill = fill};
