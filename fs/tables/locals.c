/* The table locals: what the frames of the moment bind. Names cost little; types and values are
 * only decoded where the statement uses them. */
#include "fs/remote/frames/locals.h"
#include "fs/remote/moment/moment.h"
#include "fs/remote/objects/values.h"
#include "fs/tables/thread_stacks.h"
#include "schema/schema.h"

#include <errno.h>

#define BYTES_MAX (8u << 20) /* of all texts: a thread may stand still while they are decoded */
#define NAME_CHARACTERS_MAX 200

struct reading {
    struct view *view;
    const struct offsets *offsets;
    const struct use *use;
    struct rows *rows;
    struct text scratch;
    size_t bytes;
    pid_t tid;
    size_t depth, depth_max; /* depth_max 0: all */
};

static void plan(const struct use *use, struct plan *plan)
{
    plan_stacks(plan, use, LOCALS_TID, LOCALS_DEPTH);
}

static void add_row(struct reading *r)
{
    rows_add(r->rows);
    rows_integer(r->rows, LOCALS_TID, r->tid);
    rows_integer(r->rows, LOCALS_DEPTH, (int64_t)r->depth);
}

/* What was left out is a row as well, without a name. */
static void add_note(struct reading *r, const char *note)
{
    add_row(r);
    rows_text(r->rows, LOCALS_VALUE, note);
}

/* So is what frames are missing of a thread; 0: of which one isn't known. */
static void add_torn(struct rows *rows, pid_t tid, const char *note)
{
    rows_add(rows);
    if (tid)
        rows_integer(rows, LOCALS_TID, tid);
    rows_text(rows, LOCALS_VALUE, note);
}

static void set(struct reading *r, unsigned column)
{
    r->bytes += r->scratch.size;
    rows_take(r->rows, column, &r->scratch);
}

static int add_local(void *arg, const struct local *local)
{
    struct reading *r = arg;

    add_row(r);
    if (r->rows->error)
        return r->rows->error;
    if (use_wants(r->use, LOCALS_NAME)) {
        if (local->text)
            text_puts(&r->scratch, local->text);
        else if (str_decode(r->view, r->offsets, local->name, NAME_CHARACTERS_MAX, &r->scratch) < 0)
            value_add(r->view, r->offsets, local->name, &r->scratch);
        set(r, LOCALS_NAME);
    }
    if (use_wants(r->use, LOCALS_TYPE) &&
        value_type_stackref(r->view, r->offsets, local->reference, &r->scratch))
        set(r, LOCALS_TYPE);
    text_clear(&r->scratch);
    if (use_wants(r->use, LOCALS_VALUE) &&
        value_add_stackref(r->view, r->offsets, local->reference, &r->scratch))
        set(r, LOCALS_VALUE);
    return r->scratch.error;
}

static bool is_wanted(const struct bound *bound, size_t value)
{
    return !bound->bounded || ((int64_t)value >= bound->low && (int64_t)value <= bound->high);
}

static int add_stack(void *arg, pid_t tid, const struct thread_stack *stack)
{
    struct reading *r = arg;
    size_t n = r->depth_max && r->depth_max < stack->n ? r->depth_max : stack->n;

    r->tid = tid;
    for (r->depth = 0; r->depth < n; r->depth++) {
        const struct raw_frame *frame = &stack->frames[r->depth];
        if (!is_wanted(&r->use->bounds[LOCALS_DEPTH], r->depth))
            continue;
        if (r->bytes > BYTES_MAX) {
            add_note(r, "[cut: all locals together are more than 8 MiB; ask for one tid or depth]");
            return 0;
        }
        int e = locals_iterate(r->view, r->offsets, frame->addr, frame->code, add_local, r);
        if (e == -E2BIG)
            add_note(r, "[cut: the frame binds more than 4096 names]");
        else if (e == -EFAULT)
            add_note(r, "[unreadable]");
        else if (e < 0)
            return e;
    }
    if (stack->torn)
        add_torn(r->rows, r->tid, "[torn: inner frames are missing, depth counts without them]");
    if (stack->end == STACK_UNREADABLE)
        add_torn(r->rows, r->tid, "[torn: outer frames are missing]");
    else if (stack->end == STACK_LIMIT && !r->depth_max)
        add_torn(r->rows, r->tid, "[cut: the stack is deeper than the limit]");
    return 0;
}

static int within(struct scene *scene, const struct moment *moment, const struct lwp_list *lwps,
                  const struct use *use, struct rows *rows)
{
    struct reading r = {
        .view = scene->target->view,
        .offsets = &scene->target->runtime.offsets,
        .use = use,
        .rows = rows,
        .depth_max = scene->plan.depth,
    };

    int e = thread_stacks_visit(scene, moment, lwps, add_stack, &r);
    text_deinit(&r.scratch);
    return e;
}

static int gather(struct scene *scene, const struct use *use, struct rows *rows)
{
    (void)use;
    if (scene->torn)
        add_torn(rows, 0, "[torn: some may be missing or wrong]");
    return 0;
}

const struct row_source locals_rows = {.plan = plan, .within = within, .gather = gather};
