/* The table task_edges. */
#include "fs/tables/scene.h"

#include "schema/schema.h"

/* Plans as the table tasks does. */
static void plan(const struct use *use, struct plan *plan)
{
    plan_stacks(plan, use, -1, -1);
    plan->tasks = true;
}

static int gather(struct scene *scene, const struct use *use, struct rows *rows)
{
    const struct tasks *tasks = &scene->tasks;

    for (size_t i = 0; i < tasks->nedges && !rows->error; i++) {
        rows_add(rows);
        rows_integer(rows, TASK_EDGES_TASK, (int64_t)tasks->items[tasks->edges[i].task].addr);
        rows_integer(rows, TASK_EDGES_AWAITED_BY,
                     (int64_t)tasks->items[tasks->edges[i].awaiter].addr);
    }
    if (scene->torn || tasks->cut)
        rows_add(rows); /* of no task */
    return 0;
}

const struct row_source task_edges_rows = {.plan = plan, .gather = gather};
