/* value(TID, DEPTH, 'PATH'): what a value holds, one level at a time.
 *
 * Each call is answered in every frame that it may mean. Where it names one frame, it is an error
 * if that isn't there or the path leads nowhere; else there are no rows for that frame. */
#include "fs/format/path_error.h"
#include "fs/remote/frames/children.h"
#include "fs/remote/moment/moment.h"
#include "fs/remote/objects/values.h"
#include "fs/tables/thread_stacks.h"
#include "schema/schema.h"

#include <errno.h>
#include <string.h>

#define BYTES_MAX (8u << 20) /* of all texts: a thread may stand still while they are decoded */
#define DECODED_MAX 8192u    /* rows of which more than names and paths is wanted */
#define ROWS_BETWEEN_LOOKS 256u

struct reading {
    struct scene *scene;
    struct view *view;
    const struct offsets *offsets;
    const struct use *use;
    struct rows *rows;
    struct text scratch;
    size_t bytes;
    uint64_t decoded; /* rows */
    uint64_t added;
    int stopped; /* -errno: the statement is to end */
    pid_t tid;
    size_t depth;

    /* what is asked of the frame at hand */
    const struct call *call;
    uint64_t from, last; /* positions */
    uint64_t left;       /* rows */
    uint64_t next;       /* position */
};

static void plan(const struct use *use, struct plan *plan)
{
    if (use->ncalls)
        plan_stacks(plan, use, VALUE_TID, VALUE_DEPTH);
}

static bool names_a_frame(const struct call *call)
{
    const struct range *tid = &call->ranges[VALUE_TID], *depth = &call->ranges[VALUE_DEPTH];

    return tid->low == tid->high && depth->low == depth->high;
}

static bool is_in(const struct range *range, int64_t value)
{
    return value >= range->low && value <= range->high;
}

static bool means_frame(const struct call *call, pid_t tid, size_t depth)
{
    return is_in(&call->ranges[VALUE_TID], tid) &&
           is_in(&call->ranges[VALUE_DEPTH], (int64_t)depth);
}

/* ---- rows ---- */

static void add_row(struct reading *r, uint64_t position)
{
    rows_add(r->rows);
    rows_integer(r->rows, VALUE_POSITION, (int64_t)position);
    rows_integer(r->rows, VALUE_TID, r->tid);
    rows_integer(r->rows, VALUE_DEPTH, (int64_t)r->depth);
    rows_text(r->rows, VALUE_INSIDE, r->call->text);
}

static void set(struct reading *r, unsigned column)
{
    r->bytes += r->scratch.size;
    rows_take(r->rows, column, &r->scratch);
}

static void add_path(struct reading *r, const struct child *child)
{
    text_puts(&r->scratch, r->call->text);
    text_puts(&r->scratch, child->step);
    set(r, VALUE_PATH);
}

static const char *name_of(const struct child *child)
{
    return child->key ? child->key : child->step + (*child->step == '.');
}

/* Whether all that may be read has been; then a row says so. Where the statement wants only so many
 * rows, that is an error: OFFSET would skip the row. */
static bool is_cut(struct reading *r, uint64_t position)
{
    struct scene *scene = r->scene;

    if (r->bytes <= BYTES_MAX && r->decoded < DECODED_MAX)
        return false;
    if (r->left == UINT64_MAX) {
        add_row(r, position);
        text_printf(&r->scratch, "[cut: more than 8,192 values, or 8 MiB; ask for position >= %lu]",
                    position);
        set(r, VALUE_VALUE);
    } else if (!scene->call_error) {
        scene->call_error = -EFBIG;
        text_printf(&scene->call_why,
                    "over the limit: 8,192 values, or 8 MiB, are read at once; ask for "
                    "position >= %lu, rather than by OFFSET",
                    position);
    }
    return true;
}

static int add_child(void *arg, const struct child *child)
{
    struct reading *r = arg;
    uint64_t object = stackref_object(r->offsets, child->reference), length;

    r->next = child->position + 1;
    if (child->position > r->last || !r->left)
        return 1;
    if (is_cut(r, child->position))
        return 1;
    if (++r->added % ROWS_BETWEEN_LOOKS == 0 && (r->stopped = stop_reason(r->scene->stop)) < 0)
        return 1;
    r->decoded += use_wants(r->use, VALUE_TYPE) || use_wants(r->use, VALUE_VALUE) ||
                  use_wants(r->use, VALUE_LENGTH);
    if (r->left != UINT64_MAX)
        r->left--;
    add_row(r, child->position);
    if (r->rows->error)
        return r->rows->error;
    rows_text(r->rows, VALUE_NAME, name_of(child));
    if (use_wants(r->use, VALUE_PATH))
        add_path(r, child);
    if (use_wants(r->use, VALUE_TYPE) &&
        value_type_stackref(r->view, r->offsets, child->reference, &r->scratch))
        set(r, VALUE_TYPE);
    text_clear(&r->scratch);
    if (use_wants(r->use, VALUE_VALUE) &&
        value_add_stackref(r->view, r->offsets, child->reference, &r->scratch))
        set(r, VALUE_VALUE);
    if (use_wants(r->use, VALUE_LENGTH) && object &&
        value_length(r->view, r->offsets, object, &length) == 0)
        rows_integer(r->rows, VALUE_LENGTH, (int64_t)length);
    return r->scratch.error;
}

static void add_note(struct reading *r, int error)
{
    add_row(r, r->next);
    rows_text(r->rows, VALUE_VALUE,
              error == -E2BIG ? "[cut: more than can be looked at]" : "[unreadable]");
}

/* ---- calls ---- */

static uint64_t at_least_0(int64_t position) { return position < 0 ? 0 : (uint64_t)position; }

/* The rows that this call, and those of its text behind it, want of the frame. */
static void begin_call(struct reading *r, unsigned number)
{
    const struct use *use = r->use;
    uint64_t until = 0;

    r->call = &use->calls[number];
    r->from = UINT64_MAX;
    r->last = 0;
    for (unsigned i = number; i < use->ncalls; i++) {
        const struct call *call = &use->calls[i];
        if (strcmp(call->text, r->call->text) != 0 || !means_frame(call, r->tid, r->depth))
            continue;
        uint64_t from = at_least_0(call->ranges[VALUE_POSITION].low);
        uint64_t last = at_least_0(call->ranges[VALUE_POSITION].high);
        uint64_t end = call->rows > UINT64_MAX - from ? UINT64_MAX : from + call->rows;
        r->from = from < r->from ? from : r->from;
        r->last = last > r->last ? last : r->last;
        until = end > until ? end : until;
        if (names_a_frame(call))
            r->scene->answered |= 1u << i;
    }
    r->left = until == UINT64_MAX ? until : until - r->from;
    r->next = r->from;
}

/* Whether a call before this one has had these rows added. */
static bool is_answered(const struct reading *r, unsigned number)
{
    const struct use *use = r->use;

    for (unsigned i = 0; i < number; i++)
        if (!strcmp(use->calls[i].text, use->calls[number].text) &&
            means_frame(&use->calls[i], r->tid, r->depth))
            return true;
    return false;
}

/* What is wrong with the path of a call. Of one that means many frames no path leads somewhere in
 * all of them. */
static void note_error(struct reading *r, int error, const char *at)
{
    struct scene *scene = r->scene;

    if (scene->call_error || (error != -EINVAL && !names_a_frame(r->call)))
        return;
    scene->call_error = error;
    path_error_add(r->call->text, at, error, &scene->call_why);
}

static int answer(struct reading *r, unsigned number, const struct raw_frame *frame)
{
    const struct children_of of = {r->view, r->offsets, frame->addr, frame->code};
    uint64_t value;
    const char *at;

    begin_call(r, number);
    int e = children_visit(&of, r->call->text, r->from, add_child, r, &value, &at);
    if (e == -ENOMEM || r->rows->error || r->stopped)
        return r->stopped ? r->stopped : e < 0 ? e : r->rows->error;
    if (e < 0 && *at)
        note_error(r, e, at);
    else if (e < 0)
        add_note(r, e);
    return 0;
}

static int answer_in_stack(void *arg, pid_t tid, const struct thread_stack *stack)
{
    struct reading *r = arg;
    int e = 0;

    r->tid = tid;
    for (r->depth = 0; r->depth < stack->n && e == 0; r->depth++)
        for (unsigned i = 0; i < r->use->ncalls && e == 0; i++)
            if (means_frame(&r->use->calls[i], tid, r->depth) && !is_answered(r, i))
                e = answer(r, i, &stack->frames[r->depth]);
    return e;
}

static int within(struct scene *scene, const struct moment *moment, const struct lwp_list *lwps,
                  const struct use *use, struct rows *rows)
{
    struct reading r = {
        .scene = scene,
        .view = scene->target->view,
        .offsets = &scene->target->runtime.offsets,
        .use = use,
        .rows = rows,
    };

    scene->answered = 0;
    scene->call_error = 0;
    text_clear(&scene->call_why);
    int e = use->ncalls ? thread_stacks_visit(scene, moment, lwps, answer_in_stack, &r) : 0;
    text_deinit(&r.scratch);
    return e;
}

static int gather(struct scene *scene, const struct use *use, struct rows *rows)
{
    if (!scene->torn || !use->ncalls)
        return 0;
    rows_add(rows);
    rows_text(rows, VALUE_INSIDE, use->calls[0].text);
    rows_text(rows, VALUE_VALUE, "[torn: some may be missing or wrong]");
    return 0;
}

static int miss(const struct scene *scene, const struct call *call, struct text *why)
{
    int64_t tid = call->ranges[VALUE_TID].low, depth = call->ranges[VALUE_DEPTH].low;

    text_printf(why, "thread %ld has no Python frame %ld, or isn't there", tid, depth);
    return -ENOENT;
}

/* Errors, once the moment has been found. Of all processes only one has a thread, and it isn't
 * known here which. */
static int fill(struct scene *scene, const struct use *use, struct rows *rows)
{
    for (unsigned i = 0; i < use->ncalls && !rows->front; i++)
        if (names_a_frame(&use->calls[i]) && !(scene->answered >> i & 1))
            return miss(scene, &use->calls[i], scene->why);
    if (scene->call_error && text_finish(&scene->call_why) == 0)
        text_puts(scene->why, scene->call_why.data);
    return scene->call_error;
}

const struct row_source value_rows = {
    .plan = plan, .within = within, .gather = gather, .fill = fill};
