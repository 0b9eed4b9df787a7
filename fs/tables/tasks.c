/* The table tasks. */
#include "fs/tables/scene.h"

#include "agent/base/cleanup.h"
#include "schema/schema.h"

#include <errno.h>

/* How many frames a stack has doesn't matter to tasks that wait; those that run are recognised by
 * their frames, which may lie anywhere on it. */
static void plan(const struct use *use, struct plan *plan)
{
    plan_stacks(plan, use, -1, -1);
    plan->tasks = true;
}

static void add_string(const struct tasks *tasks, struct rows *rows, unsigned column, uint32_t at)
{
    if (at)
        rows_text(rows, column, tasks_string(tasks, at));
}

/* Adds where a task's coroutine stands: its innermost frame, if that is known. */
static void add_place(const struct tasks *tasks, const struct task *task, struct rows *rows)
{
    const struct task_frame *innermost = NULL;

    for (uint32_t f = task->frames; f != TASKS_NONE; f = tasks->frames[f].next)
        if (tasks->frames[f].info && tasks->frames[f].info->state == CODE_LOADED)
            innermost = &tasks->frames[f];
    if (!innermost || task->torn || task->cut)
        return;
    int line = linetable_line(&innermost->info->lines, innermost->lasti);
    rows_text(rows, TASKS_FUNC, innermost->info->name);
    rows_text(rows, TASKS_FILE, innermost->info->file);
    if (line >= 0)
        rows_integer(rows, TASKS_LINENO, line);
}

/* Tasks by name, separated by commas; where it awaits none, the object that it waits for. */
static void add_awaits(const struct tasks *tasks, const struct task *task, struct rows *rows,
                       struct text *scratch)
{
    text_clear(scratch);
    for (uint32_t i = 0; i < task->nawaiting; i++) {
        const struct task *awaited = &tasks->items[tasks->edges[task->awaiting + i].task];
        if (scratch->size)
            text_puts(scratch, ", ");
        text_puts(scratch, awaited->name ? tasks_string(tasks, awaited->name) : "??");
    }
    if (!scratch->size)
        add_string(tasks, rows, TASKS_AWAITS, task->awaits);
    else
        rows_bytes(rows, TASKS_AWAITS, scratch->data, scratch->size);
}

/* What may be missing or wrong is a row as well, without an id. */
static void add_note(struct rows *rows, const char *note)
{
    rows_add(rows);
    rows_text(rows, TASKS_NAME, note);
    rows_text(rows, TASKS_STATE, "unreadable");
}

static int gather(struct scene *scene, const struct use *use, struct rows *rows)
{
    const struct tasks *tasks = &scene->tasks;
    _cleanup_free_ uint32_t *awaiter = calloc(tasks->n + 1, sizeof *awaiter); /* + 1; 0: none */
    _cleanup_(text_deinit) struct text scratch = TEXT_INIT;

    if (!awaiter)
        return -ENOMEM;
    for (size_t i = tasks->nedges; i-- > 0;)
        awaiter[tasks->edges[i].task] = tasks->edges[i].awaiter + 1;
    for (size_t i = 0; i < tasks->n && !rows->error; i++) {
        const struct task *task = &tasks->items[i];
        rows_add(rows);
        rows_integer(rows, TASKS_ID, (int64_t)task->addr);
        rows_text(rows, TASKS_STATE, task_state_name(task));
        add_string(tasks, rows, TASKS_NAME, task->name);
        add_string(tasks, rows, TASKS_CORO, task->coro);
        add_awaits(tasks, task, rows, &scratch);
        add_place(tasks, task, rows);
        if (standing_said(&task->standing))
            rows_real(rows, task->standing.kind == STANDS ? TASKS_STANDS : TASKS_SEEN_HERE,
                      (double)task->standing.ns / 1e9);
        if (awaiter[i])
            rows_integer(rows, TASKS_AWAITED_BY, (int64_t)tasks->items[awaiter[i] - 1].addr);
        if (task->loop == TASKS_NONE)
            continue;
        rows_integer(rows, TASKS_LOOP, (int64_t)tasks->loops[task->loop].addr);
        if (tasks->loops[task->loop].tid)
            rows_integer(rows, TASKS_TID, tasks->loops[task->loop].tid);
    }
    if (tasks->cut)
        add_note(rows, "[cut: there are more tasks than are read]");
    if (scene->torn)
        add_note(rows, "[torn: some may be missing or wrong]");
    return scratch.error;
}

const struct row_source tasks_rows = {.plan = plan, .gather = gather};
