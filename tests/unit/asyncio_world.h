/* A small process with asyncio tasks, made of bytes: for the unit test and the fuzzer.
 *
 * Two tasks wait and one runs: "parent" awaits "child" in the coroutine chain outer() -> inner(),
 * "child" awaits a future, "busy" runs step(). From 3.14 on they stand in the thread's list, before
 * in asyncio.tasks._eager_tasks. Built as the headers of each version say, by way of struct
 * offsets; what is constant in all of them is written as a number. */
#pragma once

#include "fs/remote/tasks/tasks.h"

#include <stdlib.h>
#include <string.h>

#define WORLD_BASE 0x7f0000000000u
#define WORLD_SIZE (64u << 10)

#define HEAPTYPE (1ull << 9)
#define TUPLE_SUBCLASS (1ull << 26)
#define UNICODE_SUBCLASS (1ull << 28)
#define DICT_SUBCLASS (1ull << 29)
#define TYPE_SUBCLASS (1ull << 31)

struct world {
    uint8_t bytes[WORLD_SIZE];
    uint32_t used;
    struct runtime runtime;
    struct asyncio asyncio;
    struct raw_frame frames[2];
    struct stack stack;
    struct walk walk;
    struct memory_image image;
    struct memory memory;
    uint64_t metatype, tuple_type, str_type, bytes_type, code_type, coroutine_type, future_type,
        task_type, iter_type, set_type, dict_type, module_type, builtin_type;
    uint64_t interp, tstate, parent, child, busy;
    uint64_t outer, inner, waits, step; /* coroutines: parent's two, child's, busy's */
    uint64_t future;                    /* that child awaits */
};

static inline uint8_t *world_at(struct world *w, uint64_t addr)
{
    if (addr < WORLD_BASE || addr - WORLD_BASE > WORLD_SIZE - 8)
        abort();
    return w->bytes + (addr - WORLD_BASE);
}

static inline void world_put(struct world *w, uint64_t addr, uint64_t value)
{
    memcpy(world_at(w, addr), &value, 8);
}

static inline void world_put32(struct world *w, uint64_t addr, uint32_t value)
{
    memcpy(world_at(w, addr), &value, 4);
}

static inline uint64_t world_alloc(struct world *w, uint32_t size)
{
    uint64_t addr = WORLD_BASE + w->used;
    w->used += (size + 31) & ~31u;
    if (w->used > WORLD_SIZE)
        abort();
    return addr;
}

static inline uint64_t world_object(struct world *w, uint64_t type, uint32_t size)
{
    uint64_t object = world_alloc(w, size);
    world_put(w, object + 8, type);
    return object;
}

static inline uint64_t world_cstring(struct world *w, const char *s)
{
    uint64_t addr = world_alloc(w, (uint32_t)strlen(s) + 1);
    memcpy(world_at(w, addr), s, strlen(s));
    return addr;
}

static inline uint64_t world_type(struct world *w, const char *name, uint64_t flags, uint64_t base)
{
    const struct offsets *o = &w->runtime.offsets;
    uint64_t type = world_object(w, w->metatype, (uint32_t)o->type_size + 64);
    uint64_t mro = world_object(w, w->tuple_type, (uint32_t)o->tuple_items + 16);

    world_put(w, type + (uint32_t)o->type_name, world_cstring(w, name));
    world_put(w, type + (uint32_t)o->type_flags, flags);
    world_put(w, mro + 16, base ? 2 : 1);
    world_put(w, mro + (uint32_t)o->tuple_items, type);
    world_put(w, mro + (uint32_t)o->tuple_items + 8, base);
    world_put(w, type + (uint32_t)o->type_mro, mro);
    return type;
}

static inline uint64_t world_str(struct world *w, const char *s)
{
    const struct offsets *o = &w->runtime.offsets;
    size_t n = strlen(s);
    uint64_t object = world_object(w, w->str_type, (uint32_t)(o->unicode_ascii_size + (int)n + 1));

    world_put(w, object + (uint32_t)o->unicode_length, n);
    world_put32(w, object + (uint32_t)o->unicode_state,
                1u << o->unicode_kind_bit | 1u << o->unicode_compact_bit |
                    1u << o->unicode_ascii_bit);
    memcpy(world_at(w, object + (uint32_t)o->unicode_ascii_size), s, n);
    return object;
}

/* A function of 8 instructions, all on its first line. */
static inline uint64_t world_code(struct world *w, const char *name, uint32_t line)
{
    static const uint8_t table[] = {0x80 | 13 << 3 | 7, 0};
    const struct offsets *o = &w->runtime.offsets;
    uint64_t code = world_object(w, w->code_type, (uint32_t)o->code_adaptive + 16);
    uint64_t bytes = world_object(w, w->bytes_type, (uint32_t)o->bytes_data + sizeof table + 1);

    world_put(w, bytes + (uint32_t)o->bytes_size, sizeof table);
    memcpy(world_at(w, bytes + (uint32_t)o->bytes_data), table, sizeof table);
    world_put(w, code + (uint32_t)o->code_filename, world_str(w, "/w/app.py"));
    world_put(w, code + (uint32_t)o->code_name, world_str(w, name));
    world_put(w, code + (uint32_t)o->code_qualname, world_str(w, name));
    world_put(w, code + (uint32_t)o->code_linetable, bytes);
    world_put32(w, code + (uint32_t)o->code_firstlineno, line);
    for (uint32_t i = 1; i < 16; i += 2) /* the argument of RESUME: in an await */
        *world_at(w, code + (uint32_t)o->code_adaptive + i) = 3;
    return code;
}

/* Lets a coroutine stand at an await (awaits != 0), in its execution, or at a plain yield. */
static inline void world_suspend(struct world *w, uint64_t coroutine, uint64_t awaits,
                                 bool executing)
{
    const struct offsets *o = &w->runtime.offsets;
    bool new = w->runtime.version >= 0x030f0000;
    uint64_t iframe = coroutine + (uint32_t)o->gen_iframe;
    uint64_t slots = iframe + (uint32_t)o->frame_localsplus;

    *world_at(w, coroutine + (uint32_t)o->gen_frame_state) = (uint8_t)(executing ? (new ? 4 : 0)
                                                                       : awaits  ? (new ? 2 : -1)
                                                                                 : (new ? 1 : -2));
    world_put(w, slots + 8, awaits);
    if (w->runtime.version >= 0x030e0000)
        world_put(w, iframe + (uint32_t)o->frame_stacktop, slots + (new ? 24 : 16));
    else
        world_put32(w, iframe + (uint32_t)o->frame_stacktop, 2);
}

static inline uint64_t world_coroutine(struct world *w, const char *name, uint32_t line)
{
    const struct offsets *o = &w->runtime.offsets;
    uint64_t coroutine =
        world_object(w, w->coroutine_type, (uint32_t)(o->gen_iframe + o->frame_localsplus) + 32);
    uint64_t iframe = coroutine + (uint32_t)o->gen_iframe, code = world_code(w, name, line);

    world_put(w, coroutine + (uint32_t)o->gen_qualname, world_str(w, name));
    world_put(w, iframe + (uint32_t)o->frame_code, code);
    world_put(w, iframe + (uint32_t)o->frame_instr, code + (uint32_t)o->code_adaptive);
    return coroutine;
}

static inline uint64_t world_task(struct world *w, const char *name, uint64_t coro, uint64_t loop)
{
    uint64_t task = world_object(w, w->task_type, (uint32_t)w->asyncio.task_size);

    world_put(w, task + (uint32_t)w->asyncio.loop, loop);
    world_put(w, task + (uint32_t)w->asyncio.coro, coro);
    world_put(w, task + (uint32_t)w->asyncio.name, world_str(w, name));
    return task;
}

/* {key: value} with a table of 8 index bytes. */
static inline uint64_t world_dict(struct world *w, const char *key, uint64_t value)
{
    const struct offsets *o = &w->runtime.offsets;
    uint64_t dict = world_object(w, w->dict_type, 64);
    uint64_t keys = world_alloc(w, (uint32_t)o->keys_indices + 8 + 24);
    uint64_t entry = keys + (uint32_t)o->keys_indices + 8;

    *world_at(w, keys + (uint32_t)o->keys_log2_size) = 3;
    *world_at(w, keys + (uint32_t)o->keys_log2_index_bytes) = 3;
    world_put(w, keys + (uint32_t)o->keys_nentries, 1);
    world_put(w, entry + 8, world_str(w, key));
    world_put(w, entry + 16, value);
    world_put(w, dict + (uint32_t)o->dict_used, 1);
    world_put(w, dict + (uint32_t)o->dict_keys, keys);
    return dict;
}

static inline uint64_t world_set(struct world *w, const uint64_t *items, size_t n)
{
    const struct offsets *o = &w->runtime.offsets;
    uint64_t set = world_object(w, w->set_type, 200), table = world_alloc(w, 8 * 16);

    world_put(w, set + (uint32_t)o->set_used, n);
    world_put(w, set + (uint32_t)o->set_mask, 7);
    world_put(w, set + (uint32_t)o->set_table, table);
    for (size_t i = 0; i < n; i++) {
        world_put(w, table + 16 * i, items[i]);
        world_put(w, table + 16 * i + 8, i);
    }
    return set;
}

static inline void world_make_types(struct world *w)
{
    const struct offsets *o = &w->runtime.offsets;

    /* type and tuple are their own and each other's */
    w->metatype = world_alloc(w, (uint32_t)o->type_size + 64);
    w->tuple_type = world_alloc(w, (uint32_t)o->type_size + 64);
    world_put(w, w->metatype + 8, w->metatype);
    world_put(w, w->tuple_type + 8, w->metatype);
    world_put(w, w->metatype + (uint32_t)o->type_name, world_cstring(w, "type"));
    world_put(w, w->metatype + (uint32_t)o->type_flags, TYPE_SUBCLASS);
    world_put(w, w->tuple_type + (uint32_t)o->type_name, world_cstring(w, "tuple"));
    world_put(w, w->tuple_type + (uint32_t)o->type_flags, TUPLE_SUBCLASS);
    w->str_type = world_type(w, "str", UNICODE_SUBCLASS, 0);
    w->bytes_type = world_type(w, "bytes", 0, 0);
    w->code_type = world_type(w, "code", 0, 0);
    w->coroutine_type = world_type(w, "coroutine", 0, 0);
    w->set_type = world_type(w, "set", 0, 0);
    w->dict_type = world_type(w, "dict", DICT_SUBCLASS, 0);
    w->module_type = world_type(w, "module", 0, 0);
    w->builtin_type = world_type(w, "builtin_function_or_method", 0, 0);
    w->future_type = world_type(w, "_asyncio.Future", HEAPTYPE, 0);
    w->task_type = world_type(w, "_asyncio.Task", HEAPTYPE, w->future_type);
    w->iter_type = world_type(w, "_asyncio.FutureIter", HEAPTYPE, 0);
    world_put(w, w->task_type + (uint32_t)o->type_basicsize, (uint64_t)w->asyncio.task_size);
}

/* 3.14 on: a circle of nodes through the thread state. */
static inline void world_make_list(struct world *w, const uint64_t *tasks, size_t n)
{
    uint64_t head = w->tstate + (uint32_t)w->asyncio.tstate_tasks, before = head;
    uint64_t none = w->interp + (uint32_t)w->asyncio.interp_tasks;

    for (size_t i = 0; i <= n; i++) {
        uint64_t node = i < n ? tasks[i] + (uint32_t)w->asyncio.node : head;
        world_put(w, before, node);
        world_put(w, node + 8, before);
        before = node;
    }
    world_put(w, none, none);
    world_put(w, none + 8, none);
}

/* Before: sys.modules["asyncio.tasks"]._eager_tasks, and a callback of child's
 * that wakes parent. */
static inline void world_make_modules(struct world *w, const uint64_t *tasks, size_t n)
{
    const struct offsets *o = &w->runtime.offsets;
    uint64_t module = world_object(w, w->module_type, 64);
    uint64_t wakeup = world_object(w, w->builtin_type, 48);

    world_put(w, module + (uint32_t)o->module_dict,
              world_dict(w, "_eager_tasks", world_set(w, tasks, n)));
    world_put(w, w->interp + (uint32_t)o->interp_modules, world_dict(w, "asyncio.tasks", module));
    world_put(w, wakeup + 24, w->parent);
    world_put(w, w->child + (uint32_t)w->asyncio.callback0, wakeup);
}

static inline void world_make_tasks(struct world *w)
{
    const struct asyncio *a = &w->asyncio;
    uint64_t loop = world_object(w, w->future_type, 64); /* of any type */
    uint64_t iter = world_object(w, w->iter_type, 32);

    w->outer = world_coroutine(w, "outer", 10);
    w->inner = world_coroutine(w, "inner", 20);
    w->waits = world_coroutine(w, "waits", 30);
    w->step = world_coroutine(w, "step", 40);
    w->parent = world_task(w, "parent", w->outer, loop);
    w->child = world_task(w, "child", w->waits, loop);
    w->busy = world_task(w, "busy", w->step, loop);
    w->future = world_object(w, w->future_type, 128);
    world_put(w, iter + 16, w->future);
    world_suspend(w, w->outer, w->inner, false);
    world_suspend(w, w->inner, w->child, false);
    world_suspend(w, w->waits, iter, false);
    world_suspend(w, w->step, 0, true);
    world_put(w, w->parent + (uint32_t)a->waiter, w->child);
    world_put(w, w->child + (uint32_t)a->waiter, w->future);
    if (a->awaited_by >= 0)
        world_put(w, w->child + (uint32_t)a->awaited_by, w->parent);
}

/* Builds it for a minor from 3.12 to 3.15 (PY_VERSION_HEX). */
static inline void world_make(struct world *w, uint32_t version)
{
    memset(w, 0, sizeof *w);
    w->runtime.version = version;
    w->runtime.supported = true;
    if (!offsets_for_version(version, &w->runtime.offsets))
        abort();
    const struct offsets *o = &w->runtime.offsets;
    if (version >= 0x030e0000) {
        const uint64_t words[13] = {168,   136,  96,   108, 109, 128, 152,
                                    12288, 4096, 1024, 864, 872, 880};
        if (asyncio_parse_debug((const uint8_t *)words, 16, &w->asyncio) < 0)
            abort();
    } else if (asyncio_find(&w->memory, &(struct maps){0}, &w->runtime, &w->asyncio) < 0) {
        abort();
    }
    w->used = 4096;
    world_make_types(w);
    w->interp = world_alloc(w, 12288);
    w->tstate = world_alloc(w, 1024);
    world_make_tasks(w);
    const uint64_t tasks[] = {w->parent, w->child, w->busy};
    if (version >= 0x030e0000)
        world_make_list(w, tasks, 3);
    else
        world_make_modules(w, tasks, 3);

    /* crunch() called by step(), which busy runs */
    w->frames[0] = (struct raw_frame){.addr = w->tstate, .code = world_code(w, "crunch", 50)};
    w->frames[1] = (struct raw_frame){
        .addr = w->step + (uint32_t)o->gen_iframe,
        .code = load64(world_at(w, w->step + (uint32_t)(o->gen_iframe + o->frame_code)))};
    w->stack =
        (struct stack){.tstate = w->tstate, .interp = w->interp, .frames = w->frames, .n = 2};
    w->walk = (struct walk){.stacks = &w->stack, .n = 1};
    w->image = (struct memory_image){.base = WORLD_BASE, .data = w->bytes, .size = WORLD_SIZE};
    w->memory = (struct memory){.image = &w->image};
}

/* Reads its tasks from scratch, as tasks_read() and tasks_finish(). */
static inline int world_read(struct world *w, struct code_cache *codes, struct tasks *tasks)
{
    struct tasks_origin origin = {&w->runtime, &w->asyncio, codes, &w->walk};
    struct view *view;

    int r = view_new(&w->memory, &view);
    if (r < 0)
        return r;
    r = tasks_read(view, &origin, tasks);
    view_free(view);
    return r < 0 ? r : tasks_finish(tasks, codes, &w->memory, &w->runtime.offsets);
}
