/* threads/<tid>/frames/<depth>/value: write a path, read what it holds, one level, `path = value`,
 * one a line; of what holds nothing itself. An empty line asks for the frame's names. `PATH from N`
 * begins with the N-th. See fs/remote/frames/children.h for paths. */
#include "fs/tree/file.h"

#include "fs/format/path_error.h"
#include "fs/remote/frames/children.h"
#include "fs/remote/moment/snapshot.h"
#include "fs/remote/objects/values.h"
#include "fs/tree/from_snapshot.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CHILDREN_SHOWN_MAX 200u
#define BYTES_SHOWN_MAX (512u << 10) /* no value is begun beyond: a thread may stand still */

struct question {
    const struct file_context *context;
    char path[CHILD_PATH_MAX];
    uint64_t from;

    struct view *view;
    struct text answer;
    uint64_t shown;
    int error; /* of the path; it is found up to `at` */
    const char *at;
};

static const struct offsets *offsets_of(const struct question *q)
{
    return &q->context->target->runtime.offsets;
}

static void add_line(struct question *q, const char *step, uint64_t reference)
{
    text_puts(&q->answer, q->path);
    text_puts(&q->answer, step);
    text_puts(&q->answer, " = ");
    (void)value_add_stackref(q->view, offsets_of(q), reference, &q->answer);
    text_putc(&q->answer, '\n');
}

static int add_child(void *arg, const struct child *child)
{
    struct question *q = arg;

    if (q->shown == CHILDREN_SHOWN_MAX || q->answer.size > BYTES_SHOWN_MAX) {
        text_printf(&q->answer, "... (more: %s%sfrom %lu)\n", q->path, *q->path ? " " : "",
                    child->position);
        return 1;
    }
    q->shown++;
    add_line(q, child->step, child->reference);
    return q->answer.error;
}

static int look(void *arg, struct view *view, const struct raw_stack *stack)
{
    struct question *q = arg;
    uint64_t value;

    q->view = view;
    q->shown = 0;
    text_clear(&q->answer);
    if (q->context->depth >= stack->nframes)
        return -ENOENT;
    const struct raw_frame *frame = &stack->frames[q->context->depth];
    const struct children_of of = {view, offsets_of(q), frame->addr, frame->code};
    int r = children_visit(&of, q->path, q->from, add_child, q, &value, &q->at);
    q->error = r < 0 ? r : 0;
    if (r < 0 && !*q->at)
        text_puts(&q->answer,
                  r == -E2BIG ? "... (more than can be looked at)\n" : "... (unreadable)\n");
    else if (r == 0 && !q->shown && !q->from && value)
        add_line(q, "", value);
    return r == -ENOMEM ? r : 0;
}

/* ` from N` at the end. */
static void take_from(struct question *q)
{
    char *space = strrchr(q->path, ' '), *end;
    bool alone = !strncmp(q->path, "from ", 5);

    if (!space || !isdigit((unsigned char)space[1]) ||
        (!alone && (space - q->path < 5 || strncmp(space - 5, " from", 5))))
        return;
    errno = 0;
    uint64_t from = strtoul(space + 1, &end, 10);
    if (*end || errno)
        return;
    q->from = from;
    *(alone ? q->path : space - 5) = 0;
}

int frame_value_say(struct file_context *context, const char *line, size_t size, struct text *out)
{
    struct question q = {.context = context};

    if (size >= sizeof q.path)
        return -EINVAL;
    memcpy(q.path, line, size);
    take_from(&q);
    q.at = q.path;
    int r = snapshot_visit(context->target, context->tid, look, &q);
    if (r == -ENOENT)
        text_printf(&context->why, "the thread has no Python frame %u", context->depth);
    if (r < 0)
        r = snapshot_error(context, r);
    else if (q.error && *q.at)
        path_error_add(q.path, q.at, r = q.error, &context->why);
    else if (text_finish(&q.answer) == 0)
        text_add(out, q.answer.data, q.answer.size);
    text_deinit(&q.answer);
    return r;
}

static int ask(struct file_context *context, const char *line, size_t size, struct text *said)
{
    while (size && isspace((unsigned char)*line))
        line++, size--;
    while (size && isspace((unsigned char)line[size - 1]))
        size--;
    if (size >= CHILD_PATH_MAX || memchr(line, 0, size)) {
        text_printf(&context->why, "a path has at most %u bytes, none of them zero",
                    CHILD_PATH_MAX - 1);
        return -EINVAL;
    }
    int r = snapshot_say(context, context->file, line, size, said);
    return r > 0 ? frame_value_say(context, line, size, said) : r;
}

int frame_value_run(struct file_context *context, const struct input *input, struct text *said,
                    struct outcome *outcome)
{
    int r = 0;

    while (outcome->consumed < input->size && r == 0) {
        const char *line = input->text + outcome->consumed;
        size_t left = input->size - outcome->consumed;
        const char *newline = memchr(line, '\n', left);
        if (!newline && !input->last)
            return 0; /* not all of it is there */
        size_t size = newline ? (size_t)(newline - line) : left;
        r = ask(context, line, size, said);
        outcome->consumed += size + (newline != NULL);
    }
    return r;
}
