#include "fs/remote/frames.h"

#include "fs/cleanup.h"

#include <errno.h>
#include <string.h>

#define CHUNK_SIZE 16384 /* DATA_STACK_CHUNK_SIZE, Python/pystate.c */
#define OWNED_BY_GENERATOR 1
#define OWNED_BY_C_STACK 3 /* FRAME_OWNED_BY_CSTACK in 3.12, 3.13, ..._BY_INTERPRETER after; 3.14
                              has both, 3 and 4 */
#define IS_GIL_LOCKED(word) ((int32_t)(word) > 0) /* -1: not initialized */

static void *grown(void *array, size_t *alloc, size_t n, size_t item)
{
    if (n <= *alloc)
        return array;
    size_t want = *alloc ? *alloc * 2 : 32;
    while (want < n)
        want *= 2;
    void *more = realloc(array, want * item);
    if (more) {
        memset((char *)more + *alloc * item, 0, (want - *alloc) * item);
        *alloc = want;
    }
    return more;
}

static int32_t max_of(const int32_t *values, size_t n)
{
    int32_t max = 0;
    for (size_t i = 0; i < n; i++)
        if (values[i] > max)
            max = values[i];
    return max;
}

/* How much of a thread state is copied. */
static uint32_t tstate_size(const struct offsets *o)
{
    const int32_t used[] = {o->tstate_next, o->tstate_interp, o->tstate_frame, o->tstate_cframe,
                            o->tstate_thread_id, o->tstate_native_thread_id,
                            o->tstate_datastack_chunk, o->tstate_datastack_top};
    return (uint32_t)max_of(used, ARRAY_SIZE(used)) + 8;
}

static uint32_t frame_size(const struct offsets *o)
{
    return (uint32_t)o->frame_localsplus;
}

/* view_get() for the serial lists, where the next step needs this one's bytes. -EFAULT becomes
 * -EAGAIN: such a list is being changed, or broken. */
static int read_now(struct view *view, uint64_t addr, uint32_t size, const uint8_t **out)
{
    int r = view_get(view, addr, size, out);
    if (r == -EAGAIN) {
        r = view_fill(view);
        if (r == 0)
            r = view_get(view, addr, size, out);
    }
    return r == -EFAULT || r == -E2BIG ? -EAGAIN : r;
}

/* ---- phase one: interpreters, GILs, thread states ---- */

static int add_gil(struct walk *walk, struct view *view, const struct runtime *rt, uint64_t interp)
{
    const struct offsets *o = &rt->offsets;
    uint64_t addr = rt->addr + (uint64_t)o->rt_gil;
    const uint8_t *p;

    if (o->interp_gil >= 0) {
        int r = read_now(view, interp + (uint64_t)o->interp_gil, 8, &p);
        if (r < 0)
            return r;
        addr = load64(p);
        if (!addr) /* not yet, or no longer */
            return 0;
    }
    for (size_t i = 0; i < walk->ngils; i++)
        if (walk->gils[i].addr == addr)
            return 0;
    struct gil *gils = grown(walk->gils, &walk->gils_alloc, walk->ngils + 1, sizeof *gils);
    if (!gils)
        return -ENOMEM;
    walk->gils = gils;
    int r = read_now(view, addr + (uint64_t)o->gil_last_holder,
                     (uint32_t)(o->gil_locked - o->gil_last_holder) + 4, &p);
    if (r < 0)
        return r;
    gils[walk->ngils++] = (struct gil){
        .addr = addr,
        .holder = load64(p),
        .locked = IS_GIL_LOCKED(load32(p + (o->gil_locked - o->gil_last_holder))),
    };
    return 0;
}

int32_t walk_entry_offset(const struct offsets *o)
{
    return o->tstate_frame >= 0 ? o->tstate_frame : o->tstate_cframe;
}

static struct stack *add_stack(struct walk *walk)
{
    struct stack *stacks = grown(walk->stacks, &walk->alloc, walk->n + 1, sizeof *stacks);
    if (!stacks)
        return NULL;
    walk->stacks = stacks;
    struct stack *s = &stacks[walk->n++];
    s->n = s->nanchors = 0;
    s->phase = 0;
    s->followed = 0;
    s->end = STACK_COMPLETE;
    s->torn = false;
    return s;
}

/* How much to copy of the newest chunk of a data stack: what is in use, and a bit more on the same
 * page so that it still fits next time. */
static uint32_t chunk_used(uint64_t chunk, uint64_t top)
{
    uint64_t used = top - chunk;

    if (used > VIEW_PIECE_MAX / 2)
        return CHUNK_SIZE;
    uint64_t page_end = ((top + 4095) & ~4095ull) - chunk;
    used = (used + 511) & ~511ull;
    return (uint32_t)(used < page_end ? used : page_end);
}

static int add_threads(struct walk *walk, struct view *view, const struct runtime *rt,
                       uint64_t interp, int64_t interp_id, uint64_t head)
{
    const struct offsets *o = &rt->offsets;
    uint32_t size = tstate_size(o);
    const uint8_t *p;

    for (uint64_t tstate = head; tstate; tstate = load64(p + o->tstate_next)) {
        if (walk->n == WALK_THREADS_MAX) {
            walk->cut = true;
            return 0;
        }
        int r = read_now(view, tstate, size, &p);
        if (r < 0)
            return r;
        if (load64(p + o->tstate_interp) != interp)
            return -EAGAIN; /* a freed thread state: the list changed under us */
        struct stack *s = add_stack(walk);
        if (!s)
            return -ENOMEM;
        s->tstate = tstate;
        s->interp = interp;
        s->interp_id = interp_id;
        s->thread_id = load64(p + o->tstate_thread_id);
        s->tid = 0;
        s->native_id = o->tstate_native_thread_id >= 0
                           ? (pid_t)load64(p + o->tstate_native_thread_id) : 0;
        s->next = o->tstate_frame >= 0 ? load64(p + o->tstate_frame) : 0;
        s->cframe = o->tstate_cframe >= 0 ? load64(p + o->tstate_cframe) : 0;
        s->entry = load64(p + walk_entry_offset(o));
        s->chunk = o->tstate_datastack_chunk >= 0 ? load64(p + o->tstate_datastack_chunk) : 0;
        s->chunk_used = s->chunk ? chunk_used(s->chunk, load64(p + o->tstate_datastack_top)) : 0;
    }
    return 0;
}

static int list_threads(struct walk *walk, struct view *view, const struct runtime *rt)
{
    const struct offsets *o = &rt->offsets;
    const int32_t used[] = {o->interp_next, o->interp_id, o->interp_threads_head};
    int32_t low = o->interp_next < o->interp_id ? o->interp_next : o->interp_id;
    const uint8_t *p;

    if (o->interp_threads_head < low)
        low = o->interp_threads_head;
    uint32_t size = (uint32_t)(max_of(used, ARRAY_SIZE(used)) + 8 - low);

    int r = read_now(view, rt->addr + (uint64_t)o->rt_interpreters_head, 8, &p);
    if (r < 0)
        return r;
    for (uint64_t interp = load64(p); interp;) {
        if (walk->interpreters == WALK_INTERPRETERS_MAX) {
            walk->cut = true;
            return 0;
        }
        walk->interpreters++;
        r = read_now(view, interp + (uint64_t)low, size, &p);
        if (r < 0)
            return r;
        uint64_t next = load64(p + o->interp_next - low);
        r = add_gil(walk, view, rt, interp);
        if (r == 0)
            r = add_threads(walk, view, rt, interp, (int64_t)load64(p + o->interp_id - low),
                            load64(p + o->interp_threads_head - low));
        if (r < 0)
            return r;
        interp = next;
    }
    return 0;
}

/* ---- phase two: frames, all stacks side by side ---- */

static int add_anchor(struct stack *s, uint64_t addr, size_t end)
{
    struct stack_anchor *anchors =
        grown(s->anchors, &s->anchors_alloc, s->nanchors + 1, sizeof *anchors);
    if (!anchors)
        return -ENOMEM;
    s->anchors = anchors;
    anchors[s->nanchors++] = (struct stack_anchor){addr, end};
    return 0;
}

/* The frame found at s->next, up to 3.10: a heap object. */
static void parse_old(const struct offsets *o, const uint8_t *p, uint32_t version,
                      struct raw_frame *f)
{
    f->code = load64(p + o->frame_code);
    f->lasti = (int32_t)load32(p + o->frame_lasti);
    if (version >= 0x030a0000 && f->lasti > 0)
        f->lasti *= 2; /* counted in instructions */
}

/* The same from 3.11 on. */
static void parse_new(const struct offsets *o, const uint8_t *p, uint32_t version,
                      struct raw_frame *f)
{
    f->code = load64(p + o->frame_code);
    if (version >= 0x030e0000)
        f->code &= ~3ull; /* a tagged reference: Include/internal/pycore_stackref.h */
    f->lasti = (int32_t)(load64(p + o->frame_instr) - f->code - (uint64_t)o->code_adaptive);
}

/* Takes one frame at s->next, whose bytes are p, and moves on. 3.12 on: a frame that the C stack
 * owns is no Python frame but marks where a call of the evaluation loop began. */
static int take_frame(struct walk *walk, struct stack *s, const struct runtime *rt, const uint8_t *p)
{
    const struct offsets *o = &rt->offsets;
    uint32_t limit = rt->version < 0x030b0000 ? WALK_FRAMES_MAX_OLD : WALK_FRAMES_MAX;
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
    struct raw_frame *frames = grown(s->frames, &s->alloc, s->n + 1, sizeof *frames);
    if (!frames)
        return -ENOMEM;
    s->frames = frames;
    struct raw_frame *f = &frames[s->n++];
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
static int follow_chunks(struct stack *s, struct view *view, const struct offsets *o)
{
    const uint8_t *p;

    for (; s->chunk && s->followed < WALK_CHUNKS_MAX; s->followed++) {
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

/* Goes on with one stack as far as the copied memory allows: -EAGAIN when more is queued. */
static int advance(struct walk *walk, struct stack *s, struct view *view, const struct runtime *rt)
{
    int r = 0;

    for (; s->phase < 4 && r == 0; s->phase += r == 0) {
        switch (s->phase) {
        case 0: r = follow_cframes(s, view, rt); break;
        case 1: r = follow_chunks(s, view, &rt->offsets); break;
        case 2:
            r = follow_frames(walk, s, view, rt);
            if (r == -EFAULT || r == -E2BIG) {
                s->end = r == -EFAULT ? STACK_UNREADABLE : STACK_LIMIT;
                r = 0;
            }
            s->followed = r == 0 ? 0 : s->followed; /* counts _PyCFrames next */
            break;
        case 3: r = follow_anchors(s, view, rt); break;
        }
        if (r == -EFAULT || r == -E2BIG) { /* a _PyCFrame */
            s->end = STACK_UNREADABLE;
            s->phase = 4;
            return 0;
        }
    }
    return r;
}

static int follow_all(struct walk *walk, struct view *view, const struct runtime *rt)
{
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < walk->n; i++) {
            struct stack *s = &walk->stacks[i];
            if (s->phase == 4)
                continue;
            int r = advance(walk, s, view, rt);
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

/* ---- phase three: code objects ---- */

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

static int find_codes(struct stack *s, struct view *view, const struct runtime *rt,
                      struct code_cache *codes)
{
    uint32_t size = code_head_size(&rt->offsets) - 8;
    const uint8_t *p;

    for (size_t i = 0; i < s->n; i++) {
        struct raw_frame *f = &s->frames[i];
        if (i && f->code == f[-1].code) {
            f->info = f[-1].info;
            continue;
        }
        if (view_get(view, f->code + 8, size, &p) < 0 ||
            (rt->code_type && load64(p) != rt->code_type))
            continue;
        f->info = code_cache_find(codes, &rt->offsets, f->code, p - 8);
        if (!f->info)
            return -ENOMEM;
    }
    if (rt->version >= 0x030b0000)
        hide_unentered(s);
    return 0;
}

/* Copies the heads of all code objects, without the reference count, which changes all the time
 * and says nothing, and looks them up. */
static int resolve(struct walk *walk, struct view *view, const struct runtime *rt,
                   struct code_cache *codes)
{
    uint32_t size = code_head_size(&rt->offsets) - 8;
    const uint8_t *ignored;

    for (size_t i = 0; i < walk->n; i++)
        for (size_t k = 0; k < walk->stacks[i].n; k++) {
            uint64_t code = walk->stacks[i].frames[k].code;
            if (k && code == walk->stacks[i].frames[k - 1].code)
                continue;
            int r = view_get(view, code + 8, size, &ignored);
            if (r == -ENOMEM)
                return r;
        }
    int r = view_fill(view);
    for (size_t i = 0; i < walk->n && r == 0; i++)
        r = find_codes(&walk->stacks[i], view, rt, codes);
    return r;
}

int walk_run(struct walk *walk, struct view *view, const struct runtime *runtime,
             struct code_cache *codes)
{
    walk->n = walk->ngils = walk->interpreters = walk->frames = 0;
    walk->cut = false;
    int r = list_threads(walk, view, runtime);
    if (r == 0)
        r = follow_all(walk, view, runtime);
    if (r == 0)
        r = resolve(walk, view, runtime, codes);
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

int walk_read_gils(const struct walk *walk, const struct memory *memory,
                   const struct runtime *runtime, struct gil *out)
{
    const struct offsets *o = &runtime->offsets;

    for (size_t i = 0; i < walk->ngils; i++) {
        uint8_t bytes[64];
        uint32_t size = (uint32_t)(o->gil_locked - o->gil_last_holder) + 4;
        if (size > sizeof bytes)
            return -EFAULT;
        int r = memory_read(memory, walk->gils[i].addr + (uint64_t)o->gil_last_holder, bytes, size);
        if (r < 0)
            return r;
        out[i] = (struct gil){
            .addr = walk->gils[i].addr,
            .holder = load64(bytes),
            .locked = IS_GIL_LOCKED(load32(bytes + size - 4)),
        };
    }
    return 0;
}

const struct stack *walk_find(const struct walk *walk, uint64_t tstate)
{
    for (size_t i = 0; i < walk->n; i++)
        if (walk->stacks[i].tstate == tstate)
            return &walk->stacks[i];
    return NULL;
}
