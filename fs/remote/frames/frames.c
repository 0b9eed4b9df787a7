#include "fs/remote/frames/frames.h"

#include "fs/base/array.h"
#include "fs/remote/frames/thread_list.h"
#include "fs/remote/objects/object.h"

#include <errno.h>

#define UNENTERED_MAX 8 /* frames that may be dropped where only the innermost ones are read */

#define OWNED_BY_GENERATOR 1
/* FRAME_OWNED_BY_CSTACK in 3.12 and 3.13, FRAME_OWNED_BY_INTERPRETER after; 3.14 has both. */
#define OWNED_BY_C_STACK 3

static uint32_t frame_size(const struct offsets *o) { return (uint32_t)o->frame_localsplus; }

static uint32_t frames_max(const struct walk *walk, const struct runtime *rt)
{
    uint32_t limit = rt->version < 0x030b0000 ? WALK_FRAMES_MAX_OLD : WALK_FRAMES_MAX;

    return walk->depth && walk->depth + UNENTERED_MAX < limit
               ? (uint32_t)walk->depth + UNENTERED_MAX
               : limit;
}

static int add_anchor(struct stack *s, uint64_t addr, size_t end)
{
    if (ARRAY_GROW(s->anchors, s->anchors_alloc, s->nanchors + 1) < 0)
        return -ENOMEM;
    s->anchors[s->nanchors++] = (struct stack_anchor){addr, end};
    return 0;
}

/* The frame found at s->next, up to 3.10: a heap object. */
static void parse_old(const struct offsets *o, const uint8_t *p, uint32_t version,
                      struct raw_frame *f)
{
    f->code = load64(p + o->frame_code);
    uint32_t lasti = load32(p + o->frame_lasti);
    if (version >= 0x030a0000 && (int32_t)lasti > 0)
        lasti *= 2; /* counted in instructions */
    f->lasti = (int32_t)lasti;
}

/* Reads a frame, from 3.11 on. */
static void parse_new(const struct offsets *o, const uint8_t *p, uint32_t version,
                      struct raw_frame *f)
{
    f->code = load64(p + o->frame_code);
    if (version >= 0x030e0000)
        f->code &= ~3ull; /* a tagged reference: Include/internal/pycore_stackref.h */
    f->lasti = (int32_t)(load64(p + o->frame_instr) - f->code - (uint64_t)o->code_adaptive);
    if (o->frame_tlbc_index >= 0)
        f->copy = load32(p + o->frame_tlbc_index);
}

/* Takes one frame at s->next, whose bytes are p, and moves on. 3.12 on: a frame that the C stack
 * owns is no Python frame but marks where a call of the evaluation loop began. */
static int take_frame(struct walk *walk, struct stack *s, const struct runtime *rt,
                      const uint8_t *p)
{
    const struct offsets *o = &rt->offsets;
    uint32_t limit = frames_max(walk, rt);
    uint64_t addr = s->next;

    s->next = load64(p + o->frame_previous);
    if (rt->version >= 0x030c0000 && p[o->frame_owner] >= OWNED_BY_C_STACK) {
        if (s->nanchors >= limit)
            return -E2BIG;
        if (!s->next && s->n == (s->nanchors ? s->anchors[s->nanchors - 1].end : 0))
            return 0; /* 3.15: PyThreadState's base_frame, below every call */
        return add_anchor(s, addr, s->n);
    }
    if (s->n >= limit || walk->frames >= WALK_FRAMES_TOTAL)
        return -E2BIG;
    if (ARRAY_GROW(s->frames, s->alloc, s->n + 1) < 0)
        return -ENOMEM;
    struct raw_frame *f = &s->frames[s->n++];
    walk->frames++;
    *f = (struct raw_frame){.addr = addr};
    f->of_generator = o->frame_owner >= 0 && p[o->frame_owner] == OWNED_BY_GENERATOR;
    if (rt->version < 0x030b0000)
        parse_old(o, p, rt->version, f);
    else
        parse_new(o, p, rt->version, f);
    if (o->frame_is_entry >= 0 && p[o->frame_is_entry])
        return add_anchor(s, 0, s->n); /* its address comes from the chain of _PyCFrame */
    return 0;
}

/* The chunks of a data stack: each names the one below. They only save reads of single frames, so
 * that one which can't be read does no harm. */
static int follow_chunks(const struct walk *walk, struct stack *s, struct view *view,
                         const struct offsets *o)
{
    uint32_t limit = walk->depth ? 1 : WALK_CHUNKS_MAX;
    const uint8_t *p;

    for (; s->chunk && s->followed < limit; s->followed++) {
        uint32_t size = s->followed ? CHUNK_SIZE : s->chunk_used;
        int r = size < (uint32_t)o->chunk_data ? -EFAULT : view_get(view, s->chunk, size, &p);
        if (r == -EAGAIN || r == -ENOMEM)
            return r;
        s->chunk = r == 0 ? load64(p + o->chunk_previous) : 0;
    }
    return 0;
}

/* 3.10 to 3.12 keep a structure on the C stack for each call of the evaluation loop; tstate->cframe
 * is the innermost. From 3.11 on it holds the current frame. */
static int follow_cframes(struct stack *s, struct view *view, const struct runtime *rt)
{
    const struct offsets *o = &rt->offsets;
    const uint8_t *p;

    if (!s->cframe || rt->version < 0x030b0000)
        return 0;
    int r = view_get(view, s->cframe, (uint32_t)o->cframe_size, &p);
    if (r == 0)
        s->next = load64(p + o->cframe_current_frame);
    return r;
}

static int follow_frames(struct walk *walk, struct stack *s, struct view *view,
                         const struct runtime *rt)
{
    const uint8_t *p;

    while (s->next) {
        if (s->next & 7)
            return -EFAULT;
        int r = view_get(view, s->next, frame_size(&rt->offsets), &p);
        if (r == 0)
            r = take_frame(walk, s, rt, p);
        if (r < 0)
            return r;
    }
    return 0;
}

/* The last word of each _PyCFrame is the previous one; the outermost lies in the thread state. */
static int follow_anchors(struct stack *s, struct view *view, const struct runtime *rt)
{
    const struct offsets *o = &rt->offsets;
    bool one_a_frame = rt->version < 0x030b0000;
    const uint8_t *p;

    if (rt->version >= 0x030c0000 || o->tstate_cframe < 0)
        return 0;
    while (s->cframe && s->cframe - s->tstate >= (uint64_t)o->tstate_size &&
           s->followed < (one_a_frame ? s->n : s->nanchors)) {
        int r = view_get(view, s->cframe, (uint32_t)o->cframe_size, &p);
        if (r == -EFAULT || r == -E2BIG)
            return 0;
        if (r < 0)
            return r;
        if (one_a_frame)
            r = add_anchor(s, s->cframe, s->followed + 1);
        else
            s->anchors[s->followed].addr = s->cframe;
        if (r < 0)
            return r;
        s->followed++;
        s->cframe = load64(p + o->cframe_size - 8);
    }
    return 0;
}

/* Follows the places where exceptions are handled: a chain from the innermost running generator
 * outwards, whose first words are the exception (up to 3.10 its type) and, last, the item before.
 * NULL and None stand for none (_PyErr_GetTopmostException, Python/errors.c). */
static int follow_exceptions(struct stack *s, struct view *view, const struct runtime *rt)
{
    uint32_t previous = rt->version < 0x030b0000 ? 24 : 8;
    struct object_class class;
    const uint8_t *p;

    for (; s->exc_item && s->exc_followed < WALK_EXCEPTIONS_MAX; s->exc_followed++) {
        int r = view_get(view, s->exc_item, previous + 8, &p);
        if (r == -EAGAIN || r == -ENOMEM)
            return r;
        uint64_t value = r == 0 ? load64(p) : 0;
        s->exc_item = r == 0 ? load64(p + previous) : 0;
        if (value && object_classify(view, &rt->offsets, value, &class) == 0 &&
            class.kind != OBJECT_NONE) {
            s->handles_exception = true;
            return 0;
        }
    }
    return 0;
}

#define PHASES 5

/* Goes on with one stack as far as the copied memory allows: -EAGAIN when more is queued. */
static int advance(struct walk *walk, struct stack *s, struct view *view, const struct runtime *rt)
{
    int r = 0;

    for (; s->phase < PHASES && r == 0; s->phase += r == 0) {
        switch (s->phase) {
        case 0: r = follow_cframes(s, view, rt); break;
        case 1: r = follow_chunks(walk, s, view, &rt->offsets); break;
        case 2:
            r = follow_frames(walk, s, view, rt);
            if (r == -EFAULT || r == -E2BIG) {
                s->end = r == -EFAULT ? STACK_UNREADABLE : STACK_LIMIT;
                r = 0;
            }
            s->followed = r == 0 ? 0 : s->followed; /* counts _PyCFrames next */
            break;
        case 3: r = follow_anchors(s, view, rt); break;
        case 4: r = follow_exceptions(s, view, rt); break;
        }
        if (r == -EFAULT || r == -E2BIG) { /* a _PyCFrame */
            s->end = STACK_UNREADABLE;
            s->phase = 3;
            r = 0;
        }
    }
    return r;
}

/* Calls go_on() for the stacks from..end-1, in rounds between which what is queued is copied, until
 * none of them queues more, which it says by -EAGAIN. */
static int go_all(struct walk *walk, size_t from, size_t end, struct view *view,
                  const struct runtime *rt,
                  int (*go_on)(struct walk *walk, struct stack *s, struct view *view,
                               const struct runtime *rt))
{
    for (bool more = true; more;) {
        more = false;
        for (size_t i = from; i < end; i++) {
            int r = go_on(walk, &walk->stacks[i], view, rt);
            if (r < 0 && r != -EAGAIN)
                return r;
            more |= r == -EAGAIN;
        }
        int r = view_fill(view);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- code objects ---- */

/* A function whose prologue has not run yet: CPython hides such frames too (_PyFrame_IsIncomplete,
 * Include/internal/pycore_frame.h). */
static bool is_entered(const struct raw_frame *f)
{
    return !f->info || f->of_generator || f->lasti >= f->info->first_traceable;
}

/* Drops the frames not entered and keeps the anchors in step. */
static void hide_unentered(struct stack *s)
{
    size_t to = 0, a = 0;

    for (size_t i = 0; i < s->n; i++) {
        for (; a < s->nanchors && s->anchors[a].end == i; a++)
            s->anchors[a].end = to;
        if (is_entered(&s->frames[i]))
            s->frames[to++] = s->frames[i];
    }
    for (; a < s->nanchors; a++)
        s->anchors[a].end = to;
    s->n = to;
}

/* Where bytecode has copies: whether the instruction found lies within it (co_code is as many
 * instructions as ob_size says, of two bytes each). */
static bool is_within(const struct offsets *o, const struct raw_frame *f, const uint8_t *head)
{
    return o->frame_tlbc_index < 0 ||
           (f->lasti >= 0 && (uint64_t)f->lasti < 2 * load64(head + o->object_size));
}

static int find_codes(struct stack *s, struct view *view, const struct runtime *rt,
                      struct code_cache *codes)
{
    const uint32_t type = (uint32_t)rt->offsets.object_type;
    uint32_t size = code_head_size(&rt->offsets) - type;
    const uint8_t *p;

    for (size_t i = 0; i < s->n; i++) {
        struct raw_frame *f = &s->frames[i];
        if (f->copy)
            continue;
        if (i && f->code == f[-1].code && f[-1].info && rt->offsets.frame_tlbc_index < 0) {
            f->info = f[-1].info;
            continue;
        }
        if (view_get_fixed(view, f->code + type, size, &p) < 0 ||
            (rt->code_type && load64(p) != rt->code_type))
            continue;
        f->info = code_cache_find(codes, &rt->offsets, f->code, p - type);
        if (!f->info)
            return -ENOMEM;
        if (!is_within(&rt->offsets, f, p - type)) /* the copies were being replaced */
            f->info = NULL;
    }
    if (s->n)
        s->frames[0].jit = s->jit; /* a call out of it, and a return, say where it is */
    if (rt->version >= 0x030b0000)
        hide_unentered(s);
    return 0;
}

/* One round over the frames that run a copy of their code. -EAGAIN: more is queued. */
static int find_copies(struct walk *walk, struct stack *s, struct view *view,
                       const struct runtime *rt)
{
    const struct offsets *o = &rt->offsets;
    uint64_t copy = 0;
    bool more = false;

    for (size_t i = 0; i < s->n; i++) {
        struct raw_frame *f = &s->frames[i];
        int r = f->copy ? code_copy(view, o, f->code, f->copy, &copy) : -ENOENT;
        if (r == -ENOMEM)
            return r;
        more |= r == -EAGAIN;
        if (r < 0) /* if it isn't readable: how far the code is isn't known (find_codes()) */
            continue;
        copy -= f->code + (uint64_t)o->code_adaptive; /* how far from the code's own */
        f->lasti = (int32_t)((uint32_t)f->lasti - (uint32_t)copy);
        f->copy = 0;
    }
    return more ? -EAGAIN : 0;
}

/* Of the stacks from..end-1: copies the heads of all code objects, without the reference count,
 * which changes all the time and says nothing, and looks them up. */
static int resolve(struct walk *walk, size_t from, size_t end, struct view *view,
                   const struct runtime *rt, struct code_cache *codes)
{
    const uint32_t type = (uint32_t)rt->offsets.object_type;
    uint32_t size = code_head_size(&rt->offsets) - type;
    const uint8_t *ignored;

    for (size_t i = from; i < end; i++)
        for (size_t k = 0; k < walk->stacks[i].n; k++) {
            uint64_t code = walk->stacks[i].frames[k].code;
            if (k && code == walk->stacks[i].frames[k - 1].code)
                continue;
            int r = view_get_fixed(view, code + type, size, &ignored);
            if (r == -ENOMEM)
                return r;
        }
    int r = view_fill(view);
    if (r == 0 && rt->offsets.frame_tlbc_index >= 0)
        r = go_all(walk, from, end, view, rt, find_copies);
    for (size_t i = from; i < end && r == 0; i++)
        r = find_codes(&walk->stacks[i], view, rt, codes);
    return r;
}

int walk_run(struct walk *walk, struct view *view, const struct runtime *runtime,
             struct code_cache *codes)
{
    walk->n = walk->ngils = walk->interpreters = walk->without_gil = walk->frames = 0;
    walk->cut = false;
    int r = thread_list_read(walk, view, runtime);
    if (r == 0)
        r = go_all(walk, 0, walk->n, view, runtime, advance);
    if (r == 0)
        r = resolve(walk, 0, walk->n, view, runtime, codes);
    return r;
}

int walk_again(struct walk *walk, size_t i, struct view *view, const struct runtime *runtime,
               struct code_cache *codes)
{
    walk->frames -= walk->stacks[i].n;
    int r = thread_list_again(walk, &walk->stacks[i], view, runtime);
    if (r == 0)
        r = go_all(walk, i, i + 1, view, runtime, advance);
    if (r == 0)
        r = resolve(walk, i, i + 1, view, runtime, codes);
    return r;
}

void walk_deinit(struct walk *walk)
{
    for (size_t i = 0; i < walk->alloc; i++) {
        free(walk->stacks[i].frames);
        free(walk->stacks[i].anchors);
    }
    free(walk->stacks);
    free(walk->gils);
    *walk = (struct walk){0};
}

const struct stack *walk_find(const struct walk *walk, uint64_t tstate)
{
    for (size_t i = 0; i < walk->n; i++)
        if (walk->stacks[i].tstate == tstate)
            return &walk->stacks[i];
    return NULL;
}
