/* Finds who awaits whom.
 *
 * A task's _fut_waiter is the very task that it awaits. What else awaits a task is derived from
 * what is called when that is done: gather(), wait() and shield() leave a closure over the future
 * that the awaiting task waits for; as_completed() a closure (3.12) or a method (3.13 on) with the
 * queue whose getter the awaiting task waits for; a TaskGroup a method, and it knows the task that
 * it belongs to.
 *
 * From 3.14 on a task says besides what awaits it (_asyncio_awaited_by, one object or a set), put
 * there by `await`, wait(), TaskGroup and their like. gather(), shield() and as_completed() put
 * there who called them; but what they return may be handed to another task, or be awaited by
 * nobody. So of a task in one of those only what is derived counts.
 *
 * Source: Lib/asyncio/tasks.py, queues.py, taskgroups.py, Modules/_asynciomodule.c. */
#include "fs/remote/tasks/tasks_reading.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 8     /* gather() of gather() of ... */
#define AWAITERS_MAX 64 /* looked for behind one callback */
#define CLOSURE_MAX 16  /* cells of one function */
#define MEMO_SLOTS 64

/* collections.deque: struct dequeobject and struct BLOCK (Modules/_collectionsmodule.c), the same
 * from 3.9 to 3.15 */
#define DEQUE_LEFT_BLOCK 8
#define DEQUE_LEFT_INDEX 24
#define BLOCK_ITEMS 64 /* behind the link to the left, and before the one to the right */

/* The tasks behind one object, found once for all tasks that refer to it. */
struct memo {
    uint64_t object;
    uint32_t awaiters[AWAITERS_MAX];
    size_t n;
    bool handed; /* the callback is of a function whose result may be handed on */
};

struct search {
    struct reading *reading;
    struct memo *memos;       /* MEMO_SLOTS, by address */
    struct memo *found;       /* those of the callback at hand */
    uint64_t path[DEPTH_MAX]; /* futures on the way: a circle ends */
    unsigned depth;
};

static void add_edge(struct reading *reading, uint32_t task, uint32_t awaiter)
{
    struct tasks *out = reading->out;

    if (task == TASKS_NONE || awaiter == TASKS_NONE || task == awaiter)
        return;
    if (out->nedges >= TASKS_EDGES_MAX) {
        out->cut = true;
        return;
    }
    void *edges =
        reading_grow(reading, out->edges, &out->edges_alloc, out->nedges + 1, sizeof *out->edges);
    if (!edges)
        return;
    out->edges = edges;
    out->edges[out->nedges++] = (struct task_edge){awaiter, task};
}

static bool is_future(enum awaitable_kind kind)
{
    return kind == AWAITABLE_TASK || kind == AWAITABLE_FUTURE || kind == AWAITABLE_PY_TASK ||
           kind == AWAITABLE_PY_FUTURE;
}

static bool found(struct search *s, uint64_t object)
{
    uint32_t task = address_table_find(&s->reading->index, object);

    if (task == TASKS_NONE)
        return false;
    if (s->found->n < AWAITERS_MAX)
        s->found->awaiters[s->found->n++] = task;
    return true;
}

static int search_callback(struct search *s, uint64_t callback);

/* Looks at one of a future's further callbacks: a tuple of it and a context. */
static int search_pair(void *arg, uint64_t pair)
{
    struct search *s = arg;
    uint64_t callback;

    if (tuple_item(s->reading->view, s->reading->offsets, pair, 0, &callback) == 0)
        search_callback(s, callback);
    return s->found->n == AWAITERS_MAX || reading_expired(s->reading);
}

/* What is called when a future is done that is no task of ours. */
static void search_future(struct search *s, uint64_t future, enum awaitable_kind kind)
{
    const struct asyncio *a = s->reading->origin->asyncio;
    struct view *view = s->reading->view;
    uint64_t callback0 = 0, callbacks = 0;

    if (s->depth == DEPTH_MAX)
        return;
    for (unsigned i = 0; i < s->depth; i++)
        if (s->path[i] == future)
            return;
    if (kind == AWAITABLE_TASK || kind == AWAITABLE_FUTURE) {
        if (!object_field(view, future, a->callback0, &callback0) ||
            !object_field(view, future, a->callbacks, &callbacks))
            return;
    } else if (instance_attribute(view, s->reading->offsets, future, "_callbacks", &callbacks) <
               0) {
        return;
    }
    s->path[s->depth++] = future;
    if (callback0)
        search_callback(s, callback0);
    if (callbacks)
        (void)list_iterate(view, s->reading->offsets, callbacks, search_pair, s, NULL);
    s->depth--;
}

/* The futures in an asyncio.Queue's `_getters`, a deque: each is awaited by a task in get(). */
static void search_getters(struct search *s, uint64_t deque)
{
    const struct offsets *o = s->reading->offsets;
    struct view *view = s->reading->view;
    uint64_t n, block, index, future;

    if (!object_size(view, o, deque, &n) ||
        !object_field(view, deque, o->object_size + DEQUE_LEFT_BLOCK, &block) ||
        !object_field(view, deque, o->object_size + DEQUE_LEFT_INDEX, &index))
        return;
    for (uint64_t i = 0; i < n && i < AWAITERS_MAX && !reading_expired(s->reading); i++, index++) {
        if (index == BLOCK_ITEMS) {
            index = 0;
            if (!view_read64(view, block + 8 + 8 * BLOCK_ITEMS, &block))
                return;
        }
        if (index > BLOCK_ITEMS || block & 7 || !view_read64(view, block + 8 + 8 * index, &future))
            return;
        search_future(s, future, reading_classify(s->reading, future));
    }
}

static bool search_queue(struct search *s, uint64_t queue)
{
    struct view *view = s->reading->view;
    uint64_t getters;

    if (instance_attribute(view, s->reading->offsets, queue, "_getters", &getters) < 0)
        return false;
    const char *type = tasks_string(s->reading->out, reading_type_name(s->reading, getters));
    if (!strcmp(type, "collections.deque"))
        search_getters(s, getters);
    return true;
}

/* From 3.14 on the closures hold the task that called, too: it need not be the one that awaits. */
static bool may_hold_awaiter(const struct reading *reading, enum awaitable_kind kind)
{
    return reading->offsets->version < 0x030e0000 ||
           (kind != AWAITABLE_TASK && kind != AWAITABLE_PY_TASK);
}

static int search_cell(void *arg, uint64_t cell)
{
    struct search *s = arg;
    uint64_t value;

    if (!object_field(s->reading->view, cell, s->reading->offsets->cell_ref, &value) || !value)
        return 0;
    enum awaitable_kind kind = reading_classify(s->reading, value);
    if (!is_future(kind))
        (void)search_queue(s, value);
    else if (may_hold_awaiter(s->reading, kind) && !found(s, value))
        search_future(s, value, kind);
    return s->found->n == AWAITERS_MAX || reading_expired(s->reading);
}

struct closure {
    struct search *search;
    unsigned left;
};

static int visit_cell(void *arg, uint64_t cell)
{
    struct closure *c = arg;
    return !c->left-- || search_cell(c->search, cell);
}

/* A method's object: a task, a TaskGroup, or what as_completed() returned. */
static void search_self(struct search *s, uint64_t object)
{
    struct view *view = s->reading->view;
    const struct offsets *o = s->reading->offsets;
    uint64_t value;

    if (found(s, object))
        return;
    if (instance_attribute(view, o, object, "_parent_task", &value) == 0)
        (void)found(s, value);
    else if (instance_attribute(view, o, object, "_done", &value) == 0)
        s->found->handed |= search_queue(s, value);
}

/* A function of gather(), shield() or, up to 3.12, as_completed(). */
static bool is_handed_function(struct reading *reading, uint64_t function)
{
    static const char *const names[] = {"gather.<locals>._done_callback",
                                        "shield.<locals>._inner_done_callback",
                                        "as_completed.<locals>._on_completion"};
    uint64_t name;

    if (!object_field(reading->view, function, reading->offsets->func_qualname, &name))
        return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (str_equals(reading->view, reading->offsets, name, names[i]))
            return true;
    return false;
}

/* Returns 0, so that a visitor can end with it. */
static int search_callback(struct search *s, uint64_t callback)
{
    struct reading *reading = s->reading;
    struct view *view = reading->view;
    const struct offsets *o = reading->offsets;
    struct closure cells = {s, CLOSURE_MAX};
    uint64_t object;

    if (reading_expired(reading))
        return 0;
    switch (reading_classify(reading, callback)) {
    case AWAITABLE_BUILTIN: /* the wake-up of a task in C */
        if (object_field(view, callback, o->object_size + BUILTIN_SELF, &object))
            (void)found(s, object);
        break;
    case AWAITABLE_METHOD: /* the wake-up of a task in Python, TaskGroup._on_task_done, ... */
        if (object_field(view, callback, o->method_self, &object))
            search_self(s, object);
        break;
    case AWAITABLE_FUNCTION: /* func_closure stands three pointers behind func_code */
        if (object_field(view, callback, o->func_code + 24, &object) && object)
            (void)tuple_iterate(view, o, object, visit_cell, &cells, NULL);
        break;
    default: break;
    }
    return 0;
}

/* Many tasks share one function (gather) or one method's object (TaskGroup). */
static uint64_t shared_part(struct reading *reading, uint64_t callback)
{
    uint64_t self;

    if (reading_classify(reading, callback) == AWAITABLE_METHOD &&
        object_field(reading->view, callback, reading->offsets->method_self, &self))
        return self;
    return callback;
}

static void derive_one(struct search *s, uint32_t task, uint64_t callback)
{
    uint64_t shared = shared_part(s->reading, callback);
    struct memo *memo = &s->memos[(shared >> 4) % MEMO_SLOTS];

    if (memo->object != shared) {
        *memo = (struct memo){.object = shared};
        s->found = memo;
        search_callback(s, callback);
        if (reading_classify(s->reading, callback) == AWAITABLE_FUNCTION)
            memo->handed |= is_handed_function(s->reading, callback);
    }
    s->reading->links[task].handed |= memo->handed;
    for (size_t i = 0; i < memo->n; i++)
        add_edge(s->reading, task, memo->awaiters[i]);
}

struct derivation {
    struct search *search;
    uint32_t task;
    unsigned left;
};

static int derive_pair(void *arg, uint64_t pair)
{
    struct derivation *d = arg;
    struct reading *reading = d->search->reading;
    uint64_t callback;

    if (!d->left--)
        return 1;
    if (tuple_item(reading->view, reading->offsets, pair, 0, &callback) == 0)
        derive_one(d->search, d->task, callback);
    return 0;
}

static void derive_all(struct reading *reading)
{
    struct tasks *out = reading->out;
    struct search search = {.reading = reading};

    search.memos = calloc(MEMO_SLOTS, sizeof *search.memos);
    if (!search.memos) {
        reading->error = -ENOMEM;
        return;
    }
    for (size_t i = 0; i < out->n; i++) {
        prefetch_want(&reading->prefetch, reading->links[i].callback0, 80);
        prefetch_want(&reading->prefetch, reading->links[i].callbacks, 40);
    }
    reading_fetch(reading);
    for (uint32_t t = 0; t < out->n && !reading->error && !reading_expired(reading); t++) {
        const struct task_links *l = &reading->links[t];
        struct derivation d = {&search, t, AWAITERS_MAX};
        if (l->callback0)
            derive_one(&search, t, l->callback0);
        if (l->callbacks)
            (void)list_iterate(reading->view, reading->offsets, l->callbacks, derive_pair, &d,
                               NULL);
    }
    free(search.memos);
}

struct awaited {
    struct reading *reading;
    uint32_t task;
};

static int take_awaiter(void *arg, uint64_t awaiter)
{
    struct awaited *a = arg;
    add_edge(a->reading, a->task, address_table_find(&a->reading->index, awaiter));
    return a->reading->out->nedges >= TASKS_EDGES_MAX || reading_expired(a->reading);
}

static void read_awaited_by(struct reading *reading)
{
    struct tasks *out = reading->out;

    for (size_t i = 0; i < out->n; i++)
        prefetch_want(&reading->prefetch, reading->links[i].awaited_by, 64);
    reading_fetch(reading);
    for (uint32_t t = 0; t < out->n && !reading->error && !reading_expired(reading); t++) {
        const struct task_links *l = &reading->links[t];
        struct awaited awaited = {reading, t};
        if (l->handed)
            continue;
        if (l->awaited_by && l->awaited_by_is_set)
            (void)set_iterate(reading->view, reading->offsets, l->awaited_by, take_awaiter,
                              &awaited, NULL);
        else if (l->awaited_by)
            take_awaiter(&awaited, l->awaited_by);
    }
}

void tasks_read_awaits(struct reading *reading)
{
    for (uint32_t t = 0; t < reading->out->n && !reading->error; t++)
        add_edge(reading, address_table_find(&reading->index, reading->links[t].waiter), t);
    derive_all(reading);
    if (reading->offsets->version >= 0x030e0000)
        read_awaited_by(reading);
}
