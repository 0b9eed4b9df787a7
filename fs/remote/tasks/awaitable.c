#include "fs/remote/tasks/awaitable.h"

#include <string.h>

#define TPFLAGS_HEAPTYPE (1ull << 9)
#define NAME_MAX_ 32 /* longer than any name looked for */

static const struct {
    const char *name;
    enum awaitable_kind kind;
} static_types[] = {
    {"coroutine", AWAITABLE_COROUTINE},
    {"generator", AWAITABLE_COROUTINE},
    {"async_generator", AWAITABLE_COROUTINE},
    {"coroutine_wrapper", AWAITABLE_WRAPPER},
    {"async_generator_asend", AWAITABLE_WRAPPER},
    {"async_generator_athrow", AWAITABLE_WRAPPER},
    {"anext_awaitable", AWAITABLE_WRAPPER},
    {"builtin_function_or_method", AWAITABLE_BUILTIN},
    {"method", AWAITABLE_METHOD},
    {"function", AWAITABLE_FUNCTION},
};

struct search {
    struct view *view;
    const struct offsets *offsets;
    const struct asyncio *asyncio;
    unsigned left;
    enum awaitable_kind kind;
};

static bool read_name(struct view *view, const struct offsets *o, uint64_t type, char *name)
{
    uint64_t addr;
    return object_field(view, type, o->type_name, &addr) &&
           cstring_read(view, addr, name, NAME_MAX_);
}

static bool is_named(struct search *s, uint64_t type, const char *name)
{
    struct text text = TEXT_INIT;

    bool is = type_add_name(s->view, s->offsets, type, &text) == 0 && text.data &&
              !strcmp(text.data, name);
    text_deinit(&text);
    return is;
}

static int try_base(void *arg, uint64_t type)
{
    struct search *s = arg;
    char name[NAME_MAX_];
    uint64_t size;

    if (!s->left--)
        return 1;
    if (!read_name(s->view, s->offsets, type, name))
        return 0;
    if (!strcmp(name, "_asyncio.Task")) {
        if (s->asyncio->known && object_field(s->view, type, s->offsets->type_basicsize, &size) &&
            size == (uint64_t)s->asyncio->task_size)
            s->kind = AWAITABLE_TASK;
        return 1;
    }
    if (!strcmp(name, "_asyncio.Future"))
        s->kind = AWAITABLE_FUTURE;
    else if (!strcmp(name, "Task") && is_named(s, type, "asyncio.tasks.Task"))
        s->kind = AWAITABLE_PY_TASK;
    else if (!strcmp(name, "Future") && is_named(s, type, "asyncio.futures.Future"))
        s->kind = AWAITABLE_PY_FUTURE;
    return s->kind != AWAITABLE_OTHER;
}

static enum awaitable_kind look_at(struct view *view, const struct offsets *o,
                                   const struct asyncio *asyncio, uint64_t type)
{
    struct search search = {view, o, asyncio, MRO_MAX, AWAITABLE_OTHER};
    char name[NAME_MAX_];
    uint64_t flags, mro;

    if (!object_field(view, type, o->type_flags, &flags) || !read_name(view, o, type, name))
        return AWAITABLE_OTHER;
    if (!(flags & TPFLAGS_HEAPTYPE)) {
        for (size_t i = 0; i < sizeof static_types / sizeof *static_types; i++)
            if (!strcmp(name, static_types[i].name))
                return static_types[i].kind;
        return AWAITABLE_OTHER;
    }
    if (!strcmp(name, "_asyncio.FutureIter"))
        return AWAITABLE_FUTURE_ITER;
    if (object_field(view, type, o->type_mro, &mro) && mro)
        (void)tuple_iterate(view, o, mro, try_base, &search, NULL);
    return search.kind;
}

enum awaitable_kind awaitable_classify(struct view *view, const struct offsets *offsets,
                                       const struct asyncio *asyncio, struct awaitable_cache *cache,
                                       uint64_t object)
{
    uint64_t type;

    if (!object || object & 7 || !object_field(view, object, offsets->object_type, &type) ||
        !type || type & 7)
        return AWAITABLE_OTHER;
    size_t slot = (type >> 4) * 0x9e3779b97f4a7c15ull >> 56;
    _Static_assert(AWAITABLE_CACHE == 1 << 8, "the hash keeps 8 bits");
    if (cache->slots[slot].type != type) {
        cache->slots[slot].kind = look_at(view, offsets, asyncio, type);
        cache->slots[slot].type = type;
    }
    return cache->slots[slot].kind;
}

bool awaitable_unwrap(struct view *view, const struct offsets *offsets, uint64_t object,
                      uint64_t *out)
{
    return object_field(view, object, offsets->object_size, out) && *out && !(*out & 7);
}
