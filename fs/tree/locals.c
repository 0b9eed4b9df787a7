/* threads/<tid>/locals and threads/<tid>/frames/<depth>/locals.
 *
 * The first shows all Python frames of the thread, each with a line as in backtrace, and what
 * they bind indented below it, `name = value`, as gdb's `bt full`. The second shows the lines of
 * one frame, not indented. Names that are not bound at the moment are not shown. */
#include "fs/remote/frames/locals.h"
#include "fs/remote/moment/snapshot.h"
#include "fs/remote/objects/values.h"
#include "fs/tree/file.h"
#include "fs/tree/from_snapshot.h"

#include <errno.h>

#define NAMES_SHOWN_MAX 200 /* of one frame */
#define FRAMES_SHOWN_MAX 256
/* No frame is begun beyond: the target may be stopped while this is read. */
#define BYTES_SHOWN_MAX (512u << 10)
#define NAME_CHARACTERS_MAX 200

struct rendering {
    const struct offsets *offsets;
    struct view *view;
    struct text *out;
    const char *indent;
    bool one; /* only the frame at depth */
    unsigned depth;
    unsigned names; /* shown of the current frame */
    unsigned more;  /* not shown */
};

static int render_local(void *arg, const struct local *local)
{
    struct rendering *r = arg;

    if (r->names == NAMES_SHOWN_MAX) {
        r->more++;
        return 0;
    }
    r->names++;
    text_puts(r->out, r->indent);
    if (local->text)
        text_puts(r->out, local->text);
    else if (str_decode(r->view, r->offsets, local->name, NAME_CHARACTERS_MAX, r->out) < 0)
        value_add(r->view, r->offsets, local->name, r->out);
    text_puts(r->out, " = ");
    (void)value_add_stackref(r->view, r->offsets, local->reference, r->out);
    text_putc(r->out, '\n');
    return 0;
}

static void render_names(struct rendering *r, const struct raw_frame *frame)
{
    r->names = r->more = 0;
    int result = locals_iterate(r->view, r->offsets, frame->addr, frame->code, render_local, r);
    if (r->more)
        text_printf(r->out, "%s... (%u more)\n", r->indent, r->more);
    if (result == -E2BIG)
        text_printf(r->out, "%s... (more than %u)\n", r->indent, LOCALS_MAX);
    else if (result < 0)
        text_printf(r->out, "%s... (unreadable)\n", r->indent);
}

static void render_head(struct rendering *r, size_t depth, const struct raw_frame *frame)
{
    const struct code *code = frame->info;

    if (!code || code->state != CODE_LOADED) {
        text_printf(r->out, "#%zu  ?? (unreadable)\n", depth);
        return;
    }
    int line = linetable_line(&code->lines, frame->lasti);
    if (line >= 0)
        text_printf(r->out, "#%zu  %s (%s:%s%d)\n", depth, code->name, code->file,
                    frame->jit ? "~" : "", line);
    else
        text_printf(r->out, "#%zu  %s (%s)\n", depth, code->name, code->file);
}

static int render_stack(void *arg, struct view *view, const struct raw_stack *stack)
{
    struct rendering *r = arg;

    r->view = view;
    text_clear(r->out);
    if (r->one) {
        if (r->depth >= stack->nframes)
            return -ENOENT;
        render_names(r, &stack->frames[r->depth]);
        return 0;
    }
    size_t i = 0;
    for (; i < stack->nframes && i < FRAMES_SHOWN_MAX && r->out->size < BYTES_SHOWN_MAX; i++) {
        render_head(r, i, &stack->frames[i]);
        render_names(r, &stack->frames[i]);
    }
    if (i < stack->nframes)
        text_printf(r->out, "... (%zu more frames)\n", stack->nframes - i);
    return 0;
}

static int render(struct file_context *context, struct rendering *rendering)
{
    rendering->offsets = &context->target->runtime.offsets;
    int r = snapshot_visit(context->target, context->tid, render_stack, rendering);
    if (r == -ENOENT)
        text_printf(&context->why, "the thread has no Python frame %u", context->depth);
    return r < 0 ? snapshot_error(context, r) : 0;
}

int locals_render(struct file_context *context, struct text *out)
{
    struct rendering rendering = {.out = out, .indent = "    "};
    return render(context, &rendering);
}

int frame_locals_render(struct file_context *context, struct text *out)
{
    struct rendering rendering = {.out = out, .indent = "", .one = true, .depth = context->depth};
    return render(context, &rendering);
}
