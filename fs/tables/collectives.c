#include "fs/tables/collectives.h"

#include "agent/base/cleanup.h"
#include "fs/process/collectives.h"
#include "fs/tables/scene.h"
#include "schema/schema.h"

#include <errno.h>
#include <math.h>
#include <time.h>

static const struct torch_its_group *find_group(const struct collectives *its, const char *name)
{
    for (size_t i = 0; *name && i < its->groups.n; i++)
        if (!strcmp(its->groups.items[i].name, name))
            return &its->groups.items[i];
    return NULL;
}

static void set_text(struct rows *rows, unsigned column, const char *text)
{
    if (*text)
        rows_text(rows, column, text);
}

static void set_integer(struct rows *rows, unsigned column, int64_t value)
{
    if (value >= 0)
        rows_integer(rows, column, value);
}

static void add_row(const struct collectives *its, const struct collective *c, struct rows *rows)
{
    const struct torch_its_group *group = find_group(its, c->group);

    rows_add(rows);
    rows_text(rows, COLLECTIVES_SOURCE, c->kind == COLLECTIVE_STACK ? "stack" : "native");
    rows_integer(rows, COLLECTIVES_TID, c->tid);
    set_text(rows, COLLECTIVES_GROUP_NAME, c->group);
    if (group) {
        set_integer(rows, COLLECTIVES_GROUP_SIZE, group->size);
        set_integer(rows, COLLECTIVES_GROUP_RANK, group->rank);
    }
    set_integer(rows, COLLECTIVES_SEQ, c->seq);
    if (!isnan(c->start))
        rows_real(rows, COLLECTIVES_START, c->start);
    set_text(rows, COLLECTIVES_OP, c->op);
    if (c->has_shape)
        rows_text(rows, COLLECTIVES_SHAPE, c->shape);
    set_text(rows, COLLECTIVES_DTYPE, c->dtype);
    set_integer(rows, COLLECTIVES_PEER, c->peer);
    set_text(rows, COLLECTIVES_FUNC, c->func);
    set_text(rows, COLLECTIVES_FILE, c->file);
    set_integer(rows, COLLECTIVES_LINENO, c->line);
}

int collectives_add(struct scene *scene, const struct use *use, struct rows *rows)
{
    _cleanup_free_ struct collectives *its = calloc(1, sizeof *its);
    const char *source = use->bounds[COLLECTIVES_SOURCE].equal;

    if (*source && strcmp(source, "stack") && strcmp(source, "native"))
        return 0;
    int r = its ? collectives_read(scene->target, scene->recording, scene->why, its) : -ENOMEM;
    for (size_t i = 0; r == 0 && i < its->n; i++)
        if (its->items[i].kind != COLLECTIVE_NONE)
            add_row(its, &its->items[i], rows);
    return r == -ENOENT ? 0 : r;
}
