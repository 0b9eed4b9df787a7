#include "fs/format/tasks.h"

#include "agent/base/cleanup.h"
#include "fs/format/frames.h"

#include <errno.h>
#include <string.h>

struct tree {
    const struct tasks *tasks;
    struct text *out;
    bool *shown; /* of each task: its frames stand somewhere already */
};

static void indent(const struct tree *tree, unsigned depth)
{
    text_printf(tree->out, "%*s", (int)(2 * depth), "");
}

static void add_task_line(const struct tree *tree, uint32_t t, unsigned depth, const char *note)
{
    const struct task *task = &tree->tasks->items[t];
    const char *name = tasks_string(tree->tasks, task->name);
    const char *coro = tasks_string(tree->tasks, task->coro);

    indent(tree, depth);
    text_printf(tree->out, "Task 0x%llx (%s) [%s", (unsigned long long)task->addr,
                task->name ? name : "??", task_state_name(task));
    if (standing_said(&task->standing)) {
        text_puts(tree->out, ", ");
        standing_add(&task->standing, tree->out);
    }
    text_printf(tree->out, "] %s%s\n", task->coro ? coro : "??", note);
}

static void add_frame(const struct tree *tree, const struct task_frame *raw, unsigned depth)
{
    const struct code *code = raw->info;
    struct frame frame = {.kind = FRAME_UNREADABLE, .func = "code object"};

    if (code && code->state == CODE_LOADED)
        frame = (struct frame){
            .kind = FRAME_PYTHON,
            .func = code->name,
            .file = code->file,
            .line = linetable_line(&code->lines, raw->lasti),
            .jit = raw->jit,
        };
    indent(tree, depth);
    frame_add_line(&frame, tree->out);
    text_putc(tree->out, '\n');
}

static void add_frames(const struct tree *tree, const struct task *task, unsigned depth)
{
    const struct tasks *tasks = tree->tasks;

    for (uint32_t f = task->frames; f != TASKS_NONE; f = tasks->frames[f].next)
        add_frame(tree, &tasks->frames[f], depth);
    if (task->cut) {
        indent(tree, depth);
        text_puts(tree->out, "... further frames cut ...\n");
    }
    if (task->torn) {
        indent(tree, depth);
        text_puts(tree->out, "?? (unreadable: torn frame)\n");
    }
    if (task->awaits) {
        indent(tree, depth);
        text_printf(tree->out, "%s\n", tasks_string(tasks, task->awaits));
    }
}

static void add_task(const struct tree *tree, uint32_t t, unsigned depth)
{
    const struct task *task = &tree->tasks->items[t];

    if (tree->shown[t]) {
        add_task_line(tree, t, depth, " (see above)");
        return;
    }
    if (depth > TASKS_TREE_DEPTH) {
        add_task_line(tree, t, depth, " (see below)");
        return;
    }
    tree->shown[t] = true;
    add_task_line(tree, t, depth, "");
    add_frames(tree, task, depth + 1);
    for (uint32_t i = 0; i < task->nawaiting; i++)
        add_task(tree, tree->tasks->edges[task->awaiting + i].task, depth + 1);
}

/* Adds where a loop is, if that isn't its selector. What isn't asyncio's own may wait anywhere: of
 * that only a task that runs says that it doesn't. */
static void add_busy(const struct tree *tree, uint32_t l)
{
    const struct tasks *tasks = tree->tasks;
    const struct task_loop *loop = &tasks->loops[l];
    const struct code *code = loop->at.info;
    uint32_t runs = task_loop_runs(tasks, l);
    bool blocked = standing_said(&loop->standing);

    if (!code || code->state != CODE_LOADED || task_loop_selects(loop))
        return;
    if (runs == TASKS_NONE && (!blocked || strncmp(tasks_string(tasks, loop->type), "asyncio.", 8)))
        return;
    struct frame frame = {
        .kind = FRAME_PYTHON,
        .func = code->name,
        .file = code->file,
        .line = linetable_line(&code->lines, loop->at.lasti),
        .jit = loop->at.jit,
    };
    text_puts(tree->out, blocked ? ", blocked " : ", busy");
    if (blocked)
        standing_add(&loop->standing, tree->out);
    text_puts(tree->out, " in ");
    frame_add_line(&frame, tree->out);
    if (runs != TASKS_NONE)
        text_printf(tree->out, ", by task %s", tasks_string(tasks, tasks->items[runs].name));
}

static void add_loop_line(const struct tree *tree, uint32_t l)
{
    if (l == TASKS_NONE) {
        text_puts(tree->out, "Loop ?? [unreadable]\n");
        return;
    }
    const struct task_loop *loop = &tree->tasks->loops[l];
    text_printf(tree->out, "Loop 0x%llx (%s) ", (unsigned long long)loop->addr,
                loop->type ? tasks_string(tree->tasks, loop->type) : "??");
    if (loop->tid) {
        text_printf(tree->out, "[thread %d", (int)loop->tid);
        add_busy(tree, l);
        text_puts(tree->out, "]\n");
    } else {
        text_puts(tree->out, "[not running]\n");
    }
}

/* Adds a loop's tasks [first, end): first those that nobody awaits, then what they did not lead to,
 * which await each other in a circle or stand too deep. */
static void add_loop(const struct tree *tree, uint32_t first, uint32_t end)
{
    add_loop_line(tree, tree->tasks->items[first].loop);
    for (uint32_t t = first; t < end; t++)
        if (!tree->tasks->items[t].nawaiters)
            add_task(tree, t, 1);
    for (uint32_t t = first; t < end; t++)
        if (!tree->shown[t])
            add_task(tree, t, 1);
}

int tasks_tree_add(const struct tasks *tasks, struct text *out)
{
    _cleanup_free_ bool *shown = calloc(tasks->n + 1, sizeof *shown);
    struct tree tree = {tasks, out, shown};

    if (!shown)
        return -ENOMEM;
    for (uint32_t first = 0, end; first < tasks->n; first = end) {
        for (end = first + 1; end < tasks->n && tasks->items[end].loop == tasks->items[first].loop;)
            end++;
        add_loop(&tree, first, end);
    }
    if (tasks->cut)
        text_puts(out, "[cut: there are more tasks than are read]\n");
    return 0;
}
