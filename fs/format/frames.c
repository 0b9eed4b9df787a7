#include "fs/format/frames.h"

static void add_place(const struct frame *frame, struct text *out)
{
    if (frame->line < 0) /* an instruction that belongs to no line */
        text_printf(out, "%s:?", frame->file);
    else
        text_printf(out, "%s:%s%d", frame->file, frame->jit ? "~" : "", frame->line);
}

static void add_module(const struct frame *frame, struct text *out)
{
    if (*frame->file)
        text_printf(out, "%s+0x%lx", frame->file, frame->offset);
    else
        text_printf(out, "0x%lx", frame->address);
}

void frame_add_line(const struct frame *frame, struct text *out)
{
    switch (frame->kind) {
    case FRAME_PYTHON:
        text_printf(out, "%s (", frame->func);
        add_place(frame, out);
        text_putc(out, ')');
        break;
    case FRAME_NATIVE:
        text_printf(out, "%s (", frame->func ? frame->func : "??");
        add_module(frame, out);
        text_puts(out, ") [native]");
        break;
    case FRAME_UNREADABLE: text_printf(out, "?? (unreadable: %s)", frame->func); break;
    case FRAME_CUT: text_printf(out, "... %d frames cut ...", frame->line); break;
    }
}

/* Names may hold the character that separates the elements. */
static void add_element(struct text *out, const char *s)
{
    for (; *s; s++)
        text_putc(out, *s == ';' ? ':' : *s);
}

bool frame_add_folded(const struct frame *frame, struct text *out)
{
    switch (frame->kind) {
    case FRAME_PYTHON:
        add_element(out, frame->func);
        text_puts(out, " (");
        add_element(out, frame->file);
        text_printf(out, ":%s%d)", frame->jit ? "~" : "", frame->line);
        return true;
    case FRAME_NATIVE: /* without the offset: it differs from build to build */
        if (frame->apart)
            return false; /* nor is it the Python frames' caller */
        add_element(out, frame->func ? frame->func : *frame->file ? frame->file : "??");
        text_puts(out, " [native]");
        return true;
    case FRAME_CUT: text_puts(out, "..."); return true;
    case FRAME_UNREADABLE: break;
    }
    return false;
}

void thread_add_head(const struct thread *thread, struct text *out)
{
    text_printf(out, "Thread %d (%s) [", (int)thread->tid, thread->name);
    thread_describe(thread, out);
    if (thread->interp_id > 0)
        text_printf(out, ", interpreter %ld", (long)thread->interp_id);
    if (standing_said(&thread->standing)) {
        text_puts(out, ", ");
        standing_add(&thread->standing, out);
    }
    text_puts(out, "]\n");
}

void thread_add_backtrace(const struct thread *thread, struct text *out)
{
    size_t number = 0;

    thread_add_head(thread, out);
    for (size_t i = 0; i < thread->nframes; i++) {
        const struct frame *frame = &thread->frames[i];
        text_printf(out, "  #%zu  ", number);
        frame_add_line(frame, out);
        text_putc(out, '\n');
        number += frame->kind == FRAME_CUT ? (size_t)frame->line : 1;
    }
}
