/* What a coroutine may wait for, and what may wait for a task: objects told apart by their types.
 *
 * Static types are known by their tp_name, which no Python code can give to a class of its own;
 * asyncio's classes are found among the bases, so that subclasses count. */
#pragma once

#include "fs/remote/objects/object.h"
#include "fs/remote/tasks/asyncio.h"

enum awaitable_kind {
    AWAITABLE_OTHER,
    AWAITABLE_COROUTINE,   /* coroutine, generator, asynchronous generator: has a frame */
    AWAITABLE_WRAPPER,     /* stands for the coroutine or generator it points to */
    AWAITABLE_FUTURE_ITER, /* what `await` makes of a future */
    AWAITABLE_TASK,        /* _asyncio.Task or a subclass, of the size that is known */
    AWAITABLE_FUTURE,      /* _asyncio.Future or a subclass other than that */
    AWAITABLE_PY_TASK,     /* asyncio.tasks.Task written in Python, or a subclass */
    AWAITABLE_PY_FUTURE,   /* asyncio.futures.Future written in Python, or a subclass */
    /* callbacks */
    AWAITABLE_BUILTIN, /* builtin_function_or_method */
    AWAITABLE_METHOD,
    AWAITABLE_FUNCTION,
};

/* Types looked at already; one that another pushed out is looked at again. Zero it first, and
 * again for another target or another moment. */
#define AWAITABLE_CACHE 256
struct awaitable_cache {
    struct {
        uint64_t type;
        enum awaitable_kind kind;
    } slots[AWAITABLE_CACHE];
};

/* AWAITABLE_OTHER for what is unreadable too. */
enum awaitable_kind awaitable_classify(struct view *view, const struct offsets *offsets,
                                       const struct asyncio *asyncio, struct awaitable_cache *cache,
                                       uint64_t object);

/* The object that a wrapper or the iterator of a future stands for: their first field
 * (PyAsyncGenASend, PyAsyncGenAThrow, PyCoroWrapper in Objects/genobject.c, anextawaitableobject
 * in Objects/iterobject.c, futureiterobject in Modules/_asynciomodule.c). */
bool awaitable_unwrap(struct view *view, const struct offsets *offsets, uint64_t object,
                      uint64_t *out);
