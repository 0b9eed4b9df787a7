/* The table locks. */
#include "fs/tables/scene.h"

#include "schema/schema.h"

#include <errno.h>

static void plan(const struct use *use, struct plan *plan)
{
    plan_stacks(plan, use, -1, -1);
    plan->waits = true;
    plan->threads = true;
    plan->since |= use_wants(use, LOCKS_WAITED) || use_wants(use, LOCKS_HELD);
}

static const struct wait_thread *thread_of(const struct scene *scene, const struct actor *who)
{
    return who->kind == ACTOR_THREAD ? waits_thread(&scene->waits, who->id) : NULL;
}

static const char *name_of(const struct scene *scene, const struct actor *who)
{
    const struct wait_thread *thread = thread_of(scene, who);

    return who->name                 ? waits_string(&scene->waits, who->name)
           : who->kind == ACTOR_GONE ? "a thread that is no more"
           : thread                  ? waits_string(&scene->waits, thread->name)
                                     : NULL;
}

static void add_string(const struct scene *scene, struct rows *rows, unsigned column, uint32_t at)
{
    if (at)
        rows_text(rows, column, waits_string(&scene->waits, at));
}

/* What is known of the wait itself, else for how long the thread has stood still. */
static void add_seconds(const struct scene *scene, struct rows *rows, unsigned column,
                        const struct actor *who, int64_t ns)
{
    const struct wait_thread *thread = thread_of(scene, who);

    if (ns >= 0)
        rows_real(rows, column, (double)ns / 1e9);
    else if (thread && thread->standing.kind == STANDS)
        rows_real(rows, column, (double)thread->standing.ns / 1e9);
}

static void add_holder(const struct scene *scene, const struct wait_holder *holder,
                       struct rows *rows)
{
    const struct actor *who = &holder->who;
    const char *name = name_of(scene, who);

    if (who->kind != ACTOR_PROCESS && who->id)
        rows_integer(rows, LOCKS_HOLDER_TID, who->id);
    if (who->task)
        rows_integer(rows, LOCKS_HOLDER_TASK, (int64_t)who->task);
    if (who->kind == ACTOR_PROCESS)
        rows_integer(rows, LOCKS_HOLDER_PID, who->id);
    if (name)
        rows_text(rows, LOCKS_HOLDER, name);
    rows_integer(rows, LOCKS_CERTAIN, holder->certainty == HELD_CERTAIN);
    add_string(scene, rows, LOCKS_TAKEN_FUNC, holder->taken.func);
    add_string(scene, rows, LOCKS_TAKEN_FILE, holder->taken.file);
    if (holder->taken.line)
        rows_integer(rows, LOCKS_TAKEN_LINENO, holder->taken.line);
    add_seconds(scene, rows, LOCKS_HELD, who, holder->since_ns);
}

static void add_row(const struct scene *scene, const struct wait *wait,
                    const struct wait_holder *holder, const char *name, struct rows *rows)
{
    rows_add(rows);
    if (wait->who.kind != ACTOR_PROCESS && wait->who.id)
        rows_integer(rows, LOCKS_TID, wait->who.id);
    if (wait->who.task)
        rows_integer(rows, LOCKS_TASK, (int64_t)wait->who.task);
    if (name)
        rows_text(rows, LOCKS_WAITER, name);
    rows_text(rows, LOCKS_KIND, wait->kind);
    if (wait->call)
        rows_text(rows, LOCKS_CALL, wait->call);
    if (wait->address)
        rows_integer(rows, LOCKS_ADDRESS, (int64_t)wait->address);
    add_string(scene, rows, LOCKS_NAME, wait->name);
    add_string(scene, rows, LOCKS_FUNC, wait->place.func);
    add_string(scene, rows, LOCKS_FILE, wait->place.file);
    if (wait->place.line)
        rows_integer(rows, LOCKS_LINENO, wait->place.line);
    rows_integer(rows, LOCKS_TIMED, wait->timed);
    add_seconds(scene, rows, LOCKS_WAITED, &wait->who, wait->since_ns);
    if (holder)
        add_holder(scene, holder, rows);
    if (wait->cycle != WAITS_NONE)
        rows_integer(rows, LOCKS_DEADLOCK, wait->cycle + 1);
}

/* The rows of those in a deadlock, then those of the others. */
static int fill(struct scene *scene, const struct use *use, struct rows *rows)
{
    const struct waits *waits = &scene->waits;

    for (int in_deadlock = 1; in_deadlock >= 0; in_deadlock--)
        for (size_t i = 0; i < waits->n && !rows->error; i++) {
            const struct wait *wait = &waits->items[i];
            const char *name = name_of(scene, &wait->who);
            if ((wait->cycle != WAITS_NONE) != in_deadlock ||
                (wait->who.kind == ACTOR_THREAD && !name))
                continue; /* the agent's own thread */
            if (!wait->nholders)
                add_row(scene, wait, NULL, name, rows);
            for (uint32_t k = 0; k < wait->nholders; k++)
                add_row(scene, wait, &waits->holders[wait->holders + k], name, rows);
        }
    if (waits->torn || waits->cut || waits->late) {
        rows_add(rows);
        rows_text(rows, LOCKS_KIND,
                  waits->cut    ? "[cut: there are more waits, or holders, than are read]"
                  : waits->late ? "[cut: it took too long to find who is at the other ends]"
                                : "[torn: some may be missing or wrong]");
    }
    return 0;
}

const struct row_source locks_rows = {.plan = plan, .fill = fill, .between = true};
