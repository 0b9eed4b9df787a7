#include "fs/remote/frames/thread_list.h"

#include "agent/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/remote/frames/gil.h"

#include <errno.h>

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
    const int32_t used[] = {o->tstate_next,
                            o->tstate_interp,
                            o->tstate_frame,
                            o->tstate_cframe,
                            o->tstate_thread_id,
                            o->tstate_native_thread_id,
                            o->tstate_datastack_chunk,
                            o->tstate_datastack_top,
                            o->tstate_current_exception,
                            o->tstate_exc_info,
                            o->tstate_executor};
    return (uint32_t)max_of(used, ARRAY_SIZE(used)) + 8;
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

/* Notes the GIL of an interpreter, if it has one and that is on. */
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
    if (o->gil_enabled >= 0) {
        int r = read_now(view, addr + (uint64_t)o->gil_enabled, 4, &p);
        if (r < 0)
            return r;
        if (!load32(p)) {
            walk->without_gil++;
            return 0;
        }
    }
    if (ARRAY_GROW(walk->gils, walk->gils_alloc, walk->ngils + 1) < 0)
        return -ENOMEM;
    int r = read_now(view, addr + (uint64_t)o->gil_last_holder,
                     (uint32_t)(o->gil_locked - o->gil_last_holder) + 4, &p);
    if (r < 0)
        return r;
    walk->gils[walk->ngils++] = (struct gil){
        .addr = addr,
        .holder = load64(p),
        .locked = gil_is_locked(load32(p + (o->gil_locked - o->gil_last_holder))),
    };
    return 0;
}

int32_t walk_entry_offset(const struct offsets *o)
{
    return o->tstate_frame >= 0 ? o->tstate_frame : o->tstate_cframe;
}

static struct stack *add_stack(struct walk *walk)
{
    if (ARRAY_GROW(walk->stacks, walk->alloc, walk->n + 1) < 0)
        return NULL;
    return &walk->stacks[walk->n++];
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

/* What an interpreter's collector says. */
struct collector {
    bool collects;
    uint64_t frame;
};

static struct collector read_collector(struct view *view, const struct offsets *o, uint64_t interp)
{
    struct collector collector = {0};
    const uint8_t *p;

    if (o->interp_gc_collecting >= 0 &&
        read_now(view, interp + (uint64_t)o->interp_gc_collecting, 4, &p) == 0)
        collector.collects = load32(p);
    if (collector.collects && o->interp_gc_frame >= 0 &&
        read_now(view, interp + (uint64_t)o->interp_gc_frame, 8, &p) == 0)
        collector.frame = load64(p);
    return collector;
}

/* Whether machine code of the JIT runs in a thread: who lets go of the GIL has left it, or has said
 * where it is (PyThreadState.current_executor, Include/cpython/pystate.h). */
static bool runs_jit(const struct walk *walk, const struct offsets *o, const struct stack *s,
                     const uint8_t *p)
{
    if (o->tstate_executor < 0 || !load64(p + o->tstate_executor))
        return false;
    for (size_t i = 0; i < walk->ngils; i++)
        if (walk->gils[i].locked && walk->gils[i].holder == s->tstate)
            return true;
    return s->no_gil; /* then it isn't known, and its line need not be right */
}

/* What a stack begins with, from the bytes of its thread state. */
static void begin_stack(const struct walk *walk, struct stack *s, const struct offsets *o,
                        const uint8_t *p)
{
    s->n = s->nanchors = 0;
    s->phase = 0;
    s->followed = 0;
    s->end = STACK_COMPLETE;
    s->torn = false;
    s->thread_id = load64(p + o->tstate_thread_id);
    s->native_id = o->tstate_native_thread_id >= 0 ? (pid_t)load64(p + o->tstate_native_thread_id)
                                                   : 0;
    s->next = o->tstate_frame >= 0 ? load64(p + o->tstate_frame) : 0;
    s->cframe = o->tstate_cframe >= 0 ? load64(p + o->tstate_cframe) : 0;
    s->entry = load64(p + walk_entry_offset(o));
    s->chunk = o->tstate_datastack_chunk >= 0 ? load64(p + o->tstate_datastack_chunk) : 0;
    s->handles_exception = load64(p + o->tstate_current_exception) != 0;
    s->exc_item = load64(p + o->tstate_exc_info);
    s->exc_followed = 0;
    s->chunk_used = s->chunk ? chunk_used(s->chunk, load64(p + o->tstate_datastack_top)) : 0;
    s->jit = runs_jit(walk, o, s, p);
}

static int add_threads(struct walk *walk, struct view *view, const struct runtime *rt,
                       uint64_t interp, int64_t interp_id, uint64_t head, bool no_gil)
{
    const struct collector collector = read_collector(view, &rt->offsets, interp);
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
        s->tid = 0;
        s->no_gil = no_gil;
        s->interp_collects = collector.collects;
        s->gc_frame = collector.frame;
        begin_stack(walk, s, o, p);
    }
    return 0;
}

int thread_list_again(const struct walk *walk, struct stack *s, struct view *view,
                      const struct runtime *rt)
{
    const struct offsets *o = &rt->offsets;
    const uint8_t *p;

    int r = read_now(view, s->tstate, tstate_size(o), &p);
    if (r < 0)
        return r;
    if (load64(p + o->tstate_interp) != s->interp)
        return -EAGAIN;
    begin_stack(walk, s, o, p);
    return 0;
}

int thread_list_read(struct walk *walk, struct view *view, const struct runtime *rt)
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
        size_t without = walk->without_gil;
        r = add_gil(walk, view, rt, interp);
        if (r == 0)
            r = add_threads(walk, view, rt, interp, (int64_t)load64(p + o->interp_id - low),
                            load64(p + o->interp_threads_head - low), walk->without_gil > without);
        if (r < 0)
            return r;
        interp = next;
    }
    return 0;
}

int walk_read_gils(const struct walk *walk, const struct memory *memory,
                   const struct runtime *runtime, struct gil *out)
{
    const struct offsets *o = &runtime->offsets;

    for (size_t i = 0; i < walk->ngils; i++) {
        uint8_t bytes[64];
        uint32_t size = (uint32_t)(o->gil_locked - o->gil_last_holder) + 4;
        if (size > sizeof bytes)
            return -EAGAIN;
        if (o->gil_enabled >= 0) {
            int r = memory_read(memory, walk->gils[i].addr + (uint64_t)o->gil_enabled, bytes, 4);
            if (r < 0 || !load32(bytes))
                return r < 0 && r != -EFAULT ? r : -EAGAIN;
        }
        int r = memory_read(memory, walk->gils[i].addr + (uint64_t)o->gil_last_holder, bytes, size);
        if (r < 0)
            return r == -EFAULT ? -EAGAIN : r;
        out[i] = (struct gil){
            .addr = walk->gils[i].addr,
            .holder = load64(bytes),
            .locked = gil_is_locked(load32(bytes + size - 4)),
        };
    }
    return 0;
}
