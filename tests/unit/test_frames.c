/* Frames of a free-threaded interpreter, laid out by hand: which copy of its bytecode a thread
 * runs, whether a GIL is on, and one stack read again. That real interpreters lay them out in this
 * way is what tests/cases show, as far as there are any. */
#include "fs/remote/frames/frames.h"
#include "agent/base/cleanup.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <string.h>

#define BASE 0x7f0000000000u
#define INTERP (BASE + 0x1000)
#define TSTATE (BASE + 0x10000)
#define FRAMES (BASE + 0x11000) /* 256 bytes each */
#define CODE (BASE + 0x12000)
#define COPIES (BASE + 0x13000)
#define GIL (BASE + 0x14000)
#define COPY (BASE + 0x1000000) /* bytecode is never read: only where it is counts */
#define FIRST 4                 /* _co_firsttraceable, in instructions */
#define INSTRUCTIONS 100

static uint8_t bytes[0x20000];
static struct runtime runtime;

static void put(uint64_t addr, int64_t offset, const void *value, size_t size)
{
    memcpy(bytes + (addr + (uint64_t)offset - BASE), value, size);
}

static void put64(uint64_t addr, int64_t offset, uint64_t value) { put(addr, offset, &value, 8); }
static void put32(uint64_t addr, int64_t offset, uint32_t value) { put(addr, offset, &value, 4); }

/* Frame i, with the next one below it. */
static void put_frame(unsigned i, unsigned n, uint32_t copy, uint64_t instruction)
{
    const struct offsets *o = &runtime.offsets;
    uint64_t frame = FRAMES + 256 * i;

    put64(frame, o->frame_previous, i + 1 < n ? frame + 256 : 0);
    put64(frame, o->frame_code, CODE | 1); /* a tag */
    put64(frame, o->frame_instr, instruction);
    if (o->frame_tlbc_index >= 0)
        put32(frame, o->frame_tlbc_index, copy);
}

static void make(uint32_t version, uint32_t gil_enabled)
{
    struct offsets *o = &runtime.offsets;

    memset(bytes, 0, sizeof bytes);
    runtime = (struct runtime){.addr = BASE, .version = version, .supported = true};
    CHECK(offsets_for_build(version, true, o));
    put64(BASE, o->rt_interpreters_head, INTERP);
    put64(INTERP, o->interp_threads_head, TSTATE);
    put64(INTERP, o->interp_gil, GIL);
    put32(GIL, o->gil_enabled, gil_enabled);
    put64(GIL, o->gil_last_holder, TSTATE);
    put32(GIL, o->gil_locked, 1);
    put64(TSTATE, o->tstate_interp, INTERP);
    put64(TSTATE, o->tstate_frame, FRAMES);
    put64(CODE, o->object_size, INSTRUCTIONS);
    int32_t behind = o->code_tlbc >= 0 ? o->code_tlbc : o->code_adaptive;
    put32(CODE, behind - 16, FIRST);
    if (o->code_tlbc < 0)
        return;
    put64(CODE, o->code_tlbc, COPIES);
    put64(COPIES, 0, 4);
    put64(COPIES, 8, CODE + (uint64_t)o->code_adaptive);
    put64(COPIES, 16, COPY);
    put64(COPIES, 24, 0); /* nobody's */
    put64(COPIES, 32, COPY + 0x100000);
}

static void test_copies(uint32_t version)
{
    struct memory_image image = {.base = BASE, .data = bytes, .size = sizeof bytes};
    struct memory memory = {.image = &image};
    struct code_cache *codes;
    struct walk walk = {0};
    struct view *view;

    make(version, 0);
    const uint64_t own = CODE + (uint64_t)runtime.offsets.code_adaptive;
    put_frame(0, 6, 0, own + 20);
    put_frame(1, 6, 1, COPY + 22);
    put_frame(2, 6, 2, COPY + 24); /* it is gone */
    put_frame(3, 6, 3, COPY + 0x100000 + 26);
    put_frame(4, 6, 9, COPY + 28);                         /* there are only four */
    put_frame(5, 6, 1, COPY + 2 * (uint64_t)INSTRUCTIONS); /* one instruction too far */
    CHECK_INT(view_new(&memory, &view), 0);
    CHECK_INT(code_cache_new(&codes), 0);
    CHECK_INT(walk_run(&walk, view, &runtime, codes), 0);
    CHECK_INT(walk.n, 1);
    CHECK_INT(walk.without_gil, 1);
    CHECK_INT(walk.ngils, 0);
    CHECK(walk.stacks[0].no_gil);
    const struct stack *s = &walk.stacks[0];
    CHECK_INT(s->n, 6);
    for (size_t i = 0; i < 6; i++) {
        CHECK(s->frames[i].code == CODE);
        CHECK_INT(s->frames[i].info != NULL, i == 0 || i == 1 || i == 3);
        if (s->frames[i].info)
            CHECK_INT(s->frames[i].lasti, 20 + 2 * i);
    }

    /* one stack again: it has gone on, and a frame has not been entered yet */
    put_frame(0, 2, 1, COPY + 2);
    put_frame(1, 2, 0, own + 40);
    view_reset(view);
    CHECK_INT(walk_again(&walk, 0, view, &runtime, codes), 0);
    CHECK_INT(s->n, 1);
    CHECK_INT(s->frames[0].lasti, 40);
    CHECK_INT(walk.frames, 2);
    /* its thread state is another interpreter's now */
    put64(TSTATE, runtime.offsets.tstate_interp, INTERP + 8);
    view_reset(view);
    CHECK_INT(walk_again(&walk, 0, view, &runtime, codes), -EAGAIN);
    walk_deinit(&walk);
    code_cache_free(codes);
    view_free(view);
}

static void test_gil_turned_on(uint32_t version)
{
    struct memory_image image = {.base = BASE, .data = bytes, .size = sizeof bytes};
    struct memory memory = {.image = &image};
    struct code_cache *codes;
    struct walk walk = {0};
    struct view *view;
    struct gil gil;

    make(version, 1);
    put_frame(0, 1, 0, CODE + (uint64_t)runtime.offsets.code_adaptive + 20);
    CHECK_INT(view_new(&memory, &view), 0);
    CHECK_INT(code_cache_new(&codes), 0);
    CHECK_INT(walk_run(&walk, view, &runtime, codes), 0);
    CHECK_INT(walk.ngils, 1);
    CHECK_INT(walk.without_gil, 0);
    CHECK(walk.gils[0].locked && walk.gils[0].holder == TSTATE);
    CHECK(!walk.stacks[0].no_gil);
    CHECK_INT(walk_read_gils(&walk, &memory, &runtime, &gil), 0);
    CHECK(gil.locked);
    put32(GIL, runtime.offsets.gil_enabled, 0); /* and off again */
    CHECK_INT(walk_read_gils(&walk, &memory, &runtime, &gil), -EAGAIN);
    walk_deinit(&walk);
    code_cache_free(codes);
    view_free(view);
}

int main(void)
{
    test_copies(0x030e0000);
    test_copies(0x030f0000);
    for (uint32_t version = 0x030d0000; version <= 0x030f0000; version += 0x10000)
        test_gil_turned_on(version);
    return 0;
}
