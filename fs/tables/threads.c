/* The table threads. */
#include "fs/tables/scene.h"

#include "schema/schema.h"

static void plan(const struct use *use, struct plan *plan)
{
    struct use shallow = *use;

    /* how deep stacks are is only known of whole ones */
    shallow.bounds[THREADS_DEPTH] =
        (struct bound){.low = 0, .high = 0, .bounded = !use_wants(use, THREADS_DEPTH)};
    plan_stacks(plan, &shallow, THREADS_TID, THREADS_DEPTH);
    plan->threads = true;
    plan->since |= use_wants(use, THREADS_STANDS) || use_wants(use, THREADS_SEEN_HERE);
}

static int fill(struct scene *scene, const struct use *use, struct rows *rows)
{
    const struct snapshot *snapshot = scene->snapshot;

    for (size_t i = 0; snapshot && i < snapshot->nthreads; i++) {
        const struct thread *t = &snapshot->threads[i];
        rows_add(rows);
        rows_integer(rows, THREADS_TID, t->tid);
        rows_text(rows, THREADS_THREAD, t->name);
        rows_integer(rows, THREADS_IS_MAIN, t->is_main);
        rows_text(rows, THREADS_STATE, *t->held ? "held" : thread_state_name(t->state));
        rows_integer(rows, THREADS_HOLDS_GIL, t->holds_gil);
        rows_integer(rows, THREADS_WAITS_GIL, t->waits_gil);
        rows_integer(rows, THREADS_DEPTH, (int64_t)t->depth);
        rows_real(rows, THREADS_CPU_USER, (double)t->cpu_user_ns / 1e9);
        rows_real(rows, THREADS_CPU_SYSTEM, (double)t->cpu_system_ns / 1e9);
        if (t->state == THREAD_IDLE || t->state == THREAD_GIL_WAIT || t->state == THREAD_FAULTED)
            rows_text(rows, THREADS_WCHAN, t->wait);
        if (standing_said(&t->standing))
            rows_real(rows, t->standing.kind == STANDS ? THREADS_STANDS : THREADS_SEEN_HERE,
                      (double)t->standing.ns / 1e9);
        if (!t->tstate)
            continue;
        rows_integer(rows, THREADS_HANDLES_EXCEPTION, t->handles_exception);
        if (t->collecting != COLLECTING_UNKNOWN)
            rows_integer(rows, THREADS_COLLECTS_GARBAGE, t->collecting == COLLECTING_YES);
        rows_integer(rows, THREADS_INTERPRETER, t->interp_id);
        rows_integer(rows, THREADS_IDENT, (int64_t)t->thread_id);
    }
    return 0;
}

const struct row_source threads_rows = {.plan = plan, .fill = fill};
