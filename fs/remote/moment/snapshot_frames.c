#include "fs/remote/moment/snapshot_frames.h"

#include "agent/base/cleanup.h"

#include <errno.h>
#include <string.h>

const char *frames_safe(struct frames *frames, const char *s)
{
    text_clear(&frames->scratch);
    text_add_escaped(&frames->scratch, s, strlen(s));
    return strings_add(frames->strings, frames->scratch.size ? frames->scratch.data : "");
}

static int python_frame(struct frames *frames, const struct raw_frame *raw, struct frame *out)
{
    const struct code *code = raw->info;

    *out =
        (struct frame){.kind = FRAME_PYTHON, .address = raw->addr, .code = raw->code, .line = -1};
    if (!code || code->state != CODE_LOADED) {
        out->kind = FRAME_UNREADABLE;
        out->func = "its code object is not readable";
        return 0;
    }
    if (code != frames->code) {
        frames->func = strings_add(frames->strings, code->name);
        frames->file = strings_add(frames->strings, code->file);
        frames->code = code;
    }
    out->func = frames->func;
    out->file = frames->file;
    out->position = linetable_position(&code->lines, raw->lasti);
    out->line = out->position.line;
    out->jit = raw->jit;
    if (raw->jit)
        out->position.col = -1;
    return out->func && out->file ? 0 : -ENOMEM;
}

static int native_frame(struct frames *frames, const struct native_frame *native, struct frame *out)
{
    struct native_symbol symbol;

    native_resolve(frames->native, native, &symbol);
    *out = (struct frame){
        .kind = FRAME_NATIVE, .address = native->pc, .offset = symbol.offset, .line = -1};
    out->func = symbol.name ? frames_safe(frames, symbol.name) : NULL;
    out->file = frames_safe(frames, symbol.module);
    return out->file && (out->func || !symbol.name) ? 0 : -ENOMEM;
}

static struct frame note(const char *why)
{
    return (struct frame){.kind = FRAME_UNREADABLE, .func = why, .file = "", .line = -1};
}

/* Which of n items are shown: the innermost and the outermost. */
struct shown {
    size_t head, tail;
};

static struct shown choose_shown(struct frames *frames, size_t n)
{
    struct shown shown = {SNAPSHOT_FRAMES_MAX, SNAPSHOT_FRAMES_TAIL};

    if (frames->total > SNAPSHOT_FRAMES_TOTAL) /* too many in all: a glimpse of each */
        shown = (struct shown){8, 8};
    if (n <= shown.head + shown.tail)
        shown = (struct shown){n, 0};
    frames->total += shown.head + shown.tail;
    return shown;
}

static int add_items(struct frames *frames, const struct thread_stack *python,
                     const struct native_stack *native, const struct merge_item *items, size_t n,
                     struct thread *out)
{
    struct shown shown = choose_shown(frames, n);

    out->frames = calloc(shown.head + shown.tail + 4, sizeof *out->frames);
    if (!out->frames)
        return -ENOMEM;
    if (python->torn)
        out->frames[out->nframes++] = note("torn frames: the stack changed while it was read");
    for (size_t i = 0; i < n; i++) {
        struct frame *f = &out->frames[out->nframes];
        int r = 0;
        if (i == shown.head) {
            *f = (struct frame){.kind = FRAME_CUT,
                                .file = "",
                                .line = (int)(n - shown.head - shown.tail)};
            i = n - shown.tail - 1;
        } else if (items[i].kind == MERGE_PYTHON) {
            r = python_frame(frames, &python->frames[items[i].index], f);
        } else if (items[i].kind == MERGE_NATIVE || items[i].kind == MERGE_APART) {
            r = native_frame(frames, &native->frames[items[i].index], f);
            f->apart = items[i].kind == MERGE_APART;
        } else {
            *f = note(items[i].note);
        }
        if (r < 0)
            return r;
        out->nframes++;
    }
    if (python->end == STACK_UNREADABLE)
        out->frames[out->nframes++] = note("torn frame: the stack does not go on from here");
    else if (python->end == STACK_LIMIT)
        out->frames[out->nframes++] = note("cut here: the stack is deeper than the limit");
    return 0;
}

int frames_add(struct frames *frames, const struct thread_stack *python,
               const struct native_stack *native, struct thread *out)
{
    size_t nnative = native && !python->torn ? native->nframes : 0;
    _cleanup_free_ struct merge_item *items =
        calloc(MERGE_ITEMS(nnative, python->n, python->ngroups), sizeof *items);
    size_t n = 0;

    if (!items)
        return -ENOMEM;
    if (native && !python->torn)
        n = merge_stacks(native->frames, nnative, native->end, python->groups, python->ngroups,
                         items);
    else
        for (; n < python->n; n++)
            items[n] = (struct merge_item){.kind = MERGE_PYTHON, .index = n};
    out->depth = python->n;
    return add_items(frames, python, native, items, n, out);
}
