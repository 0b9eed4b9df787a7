/* The table backtrace. Native frames are only read where the statement may want one: they have no
 * depth, so that a bound on depth leaves them out, and so does frame_type = 'Python'. */
#include "fs/tables/scene.h"

#include "schema/schema.h"

#include <stdio.h>
#include <string.h>

static bool only_python(const struct use *use)
{
    return use->bounds[BACKTRACE_DEPTH].bounded ||
           !strcmp(use->bounds[BACKTRACE_FRAME_TYPE].equal, "Python");
}

static void plan(const struct use *use, struct plan *plan)
{
    plan_stacks(plan, use, BACKTRACE_TID, BACKTRACE_DEPTH);
    plan->threads = true;
    plan->native |= !only_python(use) || use_wants(use, BACKTRACE_NUMBER);
}

/* Whether a frame counts in `depth`: a Python frame, also where its code object could not be
 * read. */
static bool is_python(const struct frame *frame)
{
    return frame->kind == FRAME_PYTHON || (frame->kind == FRAME_UNREADABLE && frame->address);
}

static void add_position(struct rows *rows, const struct position *position)
{
    if (position->line < 0)
        return;
    rows_integer(rows, BACKTRACE_LINENO, position->line);
    if (position->col < 0)
        return;
    rows_integer(rows, BACKTRACE_END_LINENO, position->end_line);
    rows_integer(rows, BACKTRACE_COL, position->col);
    if (position->end_col >= 0)
        rows_integer(rows, BACKTRACE_END_COL, position->end_col);
}

static void add_frame(struct rows *rows, const struct thread *thread, const struct frame *frame)
{
    static const char *const types[] = {
        [FRAME_PYTHON] = "Python",
        [FRAME_NATIVE] = "Native",
        [FRAME_UNREADABLE] = "Unreadable",
        [FRAME_CUT] = "Cut",
    };
    char cut[40];

    rows_integer(rows, BACKTRACE_TID, thread->tid);
    rows_text(rows, BACKTRACE_THREAD, thread->name);
    rows_text(rows, BACKTRACE_FRAME_TYPE, types[frame->kind]);
    rows_text(rows, BACKTRACE_FUNC, frame->func);
    if (frame->address)
        rows_integer(rows, BACKTRACE_ADDRESS, (int64_t)frame->address);
    if (frame->kind == FRAME_PYTHON) {
        rows_text(rows, BACKTRACE_FILE, frame->file);
        add_position(rows, &frame->position);
    } else if (frame->kind == FRAME_NATIVE && *frame->file) {
        rows_text(rows, BACKTRACE_MODULE, frame->file);
    } else if (frame->kind == FRAME_CUT) {
        snprintf(cut, sizeof cut, "%d frames cut", frame->line);
        rows_text(rows, BACKTRACE_FUNC, cut);
    }
}

static void add_thread(const struct thread *thread, const struct use *use, struct rows *rows)
{
    const struct bound *bound = &use->bounds[BACKTRACE_DEPTH];
    size_t number = 0, depth = 0, left = 0;

    for (size_t i = 0; i < thread->nframes; i++)
        left += is_python(&thread->frames[i]);
    for (size_t i = 0; i < thread->nframes && !rows->error; i++) {
        const struct frame *frame = &thread->frames[i];
        bool python = is_python(frame);
        if (frame->kind == FRAME_CUT) /* Python frames and others: the rest are the outermost */
            depth = thread->depth - left;
        left -= python;
        if (!bound->bounded ||
            (python && (int64_t)depth >= bound->low && (int64_t)depth <= bound->high)) {
            rows_add(rows);
            add_frame(rows, thread, frame);
            rows_integer(rows, BACKTRACE_NUMBER, (int64_t)number);
            if (python)
                rows_integer(rows, BACKTRACE_DEPTH, (int64_t)depth);
        }
        depth += python;
        number += frame->kind == FRAME_CUT ? (size_t)frame->line : 1;
    }
}

static int fill(struct scene *scene, const struct use *use, struct rows *rows)
{
    const struct snapshot *snapshot = scene->snapshot;

    for (size_t i = 0; snapshot && i < snapshot->nthreads; i++)
        add_thread(&snapshot->threads[i], use, rows);
    return 0;
}

const struct row_source backtrace_rows = {.plan = plan, .fill = fill};
