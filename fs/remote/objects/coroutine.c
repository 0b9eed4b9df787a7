#include "fs/remote/objects/coroutine.h"

#include "fs/remote/objects/object.h"

#include <errno.h>

#define STACK_MAX 65536u /* slots of one frame, locals and evaluation stack */

/* enum _framestate, Include/internal/pycore_frame.h: it differs by minor. */
struct states {
    int8_t created, suspended, suspended_last, executing, finished;
};
static const struct states states_3_10 = {-2, -1, -1, 0, 1};
static const struct states states_3_13 = {-3, -1, -1, 0, 1}; /* -2 is suspended in a plain yield */
static const struct states states_3_15 = {0, 2, 3, 4, 5};    /* 1 is suspended in a plain yield */

static const struct states *states_of(uint32_t version)
{
    return version >= 0x030f0000   ? &states_3_15
           : version >= 0x030d0000 ? &states_3_13
                                   : &states_3_10;
}

uint32_t coroutine_size(const struct offsets *o)
{
    return (uint32_t)(o->gen_iframe + o->frame_localsplus);
}

/* 3.12 doesn't tell a plain `yield` from an `await` in the state: the instruction to resume at
 * does, RESUME with 2 or 3 (yield from, await) against 1. */
static bool in_await(struct view *view, uint64_t instruction)
{
    const uint8_t *next = view_read(view, instruction + 2, 2);
    return next && (next[1] & 3) >= 2;
}

/* The object awaited lies on the frame's evaluation stack: on top, and from 3.15 on below what
 * SEND has pushed besides. */
static int read_awaits(struct view *view, const struct offsets *o, const uint8_t *iframe,
                       uint64_t iframe_addr, uint64_t *out)
{
    uint64_t slots = iframe_addr + (uint32_t)o->frame_localsplus, top, object;

    if (o->version >= 0x030e0000)
        top = load64(iframe + o->frame_stacktop);
    else
        top = slots + 8ull * load32(iframe + o->frame_stacktop);
    uint64_t below = o->version >= 0x030f0000 ? 16 : 8;
    if (top & 7 || top < slots + below || top - slots > 8ull * STACK_MAX)
        return -EFAULT;
    if (!view_read64(view, top - below, &object))
        return -EFAULT;
    *out = o->version >= 0x030e0000 ? object & ~3ull : object;
    return 0;
}

/* Up to 3.10 the frame is an object of its own. Up to 3.9 the generator knows whether it runs, and
 * the frame whether it has begun. */
static int read_old(struct view *view, const struct offsets *o, uint64_t addr,
                    struct coroutine *out)
{
    struct coroutine found = {0};
    const uint8_t *running, *lasti;

    if (addr & 7 || o->gen_frame < 0 ||
        !view_read64(view, addr + (uint32_t)o->gen_frame, &found.frame))
        return -EFAULT;
    if (!found.frame) {
        found.finished = true;
        *out = found;
        return 0;
    }
    if (found.frame & 7 || !view_read64(view, found.frame + (uint32_t)o->frame_code, &found.code) ||
        !(lasti = view_read(view, found.frame + (uint32_t)o->frame_lasti, 4)))
        return -EFAULT;
    uint32_t instruction = load32(lasti);
    found.lasti = (int32_t)instruction;
    found.created = found.lasti < 0;
    if (o->gen_running >= 0) {
        if (!(running = view_read(view, addr + (uint32_t)o->gen_running, 1)))
            return -EFAULT;
        found.executing = *running;
    } else {
        found.lasti = found.created ? -1 : (int32_t)(instruction * 2); /* counted in instructions */
        if (o->frame_state < 0 ||
            !(running = view_read(view, found.frame + (uint32_t)o->frame_state, 1)))
            return -EFAULT;
        found.executing = (int8_t)*running == states_3_10.executing;
    }
    *out = found;
    return 0;
}

/* Where the instruction of a frame is in its code. */
static bool read_lasti(struct view *view, const struct offsets *o, const uint8_t *iframe,
                       struct coroutine *out)
{
    uint64_t first = out->code + (uint32_t)o->code_adaptive;
    uint32_t copy = o->frame_tlbc_index >= 0 ? load32(iframe + o->frame_tlbc_index) : 0;
    int r = copy ? -EAGAIN : 0;

    while (r == -EAGAIN) {
        r = code_copy(view, o, out->code, copy, &first);
        if (r == -EAGAIN && view_fill(view) < 0)
            r = -EFAULT;
    }
    out->lasti = (int32_t)(load64(iframe + o->frame_instr) - first);
    return r == 0;
}

int coroutine_read(struct view *view, const struct offsets *o, uint64_t addr, struct coroutine *out)
{
    const struct states *states = states_of(o->version);
    struct coroutine found = {0};

    if (o->gen_iframe < 0)
        return read_old(view, o, addr, out);
    const uint8_t *p = addr & 7 ? NULL : view_read(view, addr, coroutine_size(o));
    if (!p)
        return -EFAULT;
    int8_t state = (int8_t)p[o->gen_frame_state];
    const uint8_t *iframe = p + o->gen_iframe;
    found.frame = addr + (uint32_t)o->gen_iframe;
    if (state >= states->finished) {
        found.finished = true;
        *out = found;
        return 0;
    }
    found.created = state == states->created;
    found.executing = state == states->executing;
    found.code = load64(iframe + o->frame_code);
    if (o->version >= 0x030e0000)
        found.code &= ~3ull; /* a tagged reference: Include/internal/pycore_stackref.h */
    uint64_t instruction = load64(iframe + o->frame_instr);
    if (!found.code || found.code & 7 || !read_lasti(view, o, iframe, &found))
        return -EFAULT;
    if (o->version >= 0x030c0000 && state >= states->suspended && state <= states->suspended_last &&
        (o->version >= 0x030d0000 || in_await(view, instruction)))
        found.torn = read_awaits(view, o, iframe, found.frame, &found.awaits) < 0;
    *out = found;
    return 0;
}
