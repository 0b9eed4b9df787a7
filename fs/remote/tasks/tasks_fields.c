/* What a task object itself says: name, state, event loop, coroutine, what it waits for. */
#include "fs/remote/tasks/tasks_reading.h"

#include <errno.h>
#include <string.h>

enum { FUTURE_PENDING, FUTURE_CANCELLED, FUTURE_FINISHED }; /* fut_state, _asynciomodule.c */

enum outcome { KEEP, DROP, BROKEN };

static enum outcome read_c_task(struct reading *reading, struct task *task, struct task_links *l)
{
    const struct asyncio *a = reading->origin->asyncio;
    const uint8_t *p = view_read(reading->view, task->addr, (uint32_t)a->task_size);

    if (!p)
        return BROKEN;
    uint32_t state = load32(p + a->state);
    if (state != FUTURE_PENDING)
        return state <= FUTURE_FINISHED ? DROP : BROKEN;
    l->loop = load64(p + a->loop);
    l->coro = load64(p + a->coro);
    l->name = load64(p + a->name);
    l->waiter = load64(p + a->waiter);
    l->callback0 = load64(p + a->callback0);
    l->callbacks = load64(p + a->callbacks);
    if (a->awaited_by >= 0) {
        l->awaited_by = load64(p + a->awaited_by);
        l->awaited_by_is_set = p[a->awaited_by_is_set];
    }
    task->cancelling = (p[a->must_cancel] >> a->must_cancel_bit & 1) || load32(p + a->cancels);
    return KEEP;
}

struct py_task {
    struct reading *reading;
    struct task *task;
    struct task_links *links;
    uint64_t state;
};

static bool is_none(struct reading *reading, uint64_t object)
{
    struct object_class class;
    return object_classify(reading->view, reading->offsets, object, &class) == 0 &&
           class.kind == OBJECT_NONE;
}

static uint64_t unless_none(struct reading *reading, uint64_t object)
{
    return is_none(reading, object) ? 0 : object;
}

static int take_attribute(void *arg, const struct own_attribute *attribute)
{
    struct py_task *t = arg;
    struct reading *reading = t->reading;
    struct task_links *l = t->links;
    const struct {
        const char *name;
        uint64_t *to;
    } links[] = {
        {"_loop", &l->loop},
        {"_coro", &l->coro},
        {"_name", &l->name},
        {"_state", &t->state},
        {"_fut_waiter", &l->waiter},
        {"_callbacks", &l->callbacks},
        {"_Future__asyncio_awaited_by", &l->awaited_by},
    };
    static const char *const counts[] = {"_must_cancel", "_num_cancels_requested"};
    int64_t count;

    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        if (str_equals(reading->view, reading->offsets, attribute->key, links[i].name)) {
            *links[i].to = unless_none(reading, attribute->value);
            return 0;
        }
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (str_equals(reading->view, reading->offsets, attribute->key, counts[i]) &&
            int_to_i64(reading->view, reading->offsets, attribute->value, &count) == 0 && count)
            t->task->cancelling = true;
    return 0;
}

static enum outcome read_py_task(struct reading *reading, struct task *task, struct task_links *l)
{
    struct py_task t = {reading, task, l, 0};

    if (instance_iterate(reading->view, reading->offsets, task->addr, take_attribute, &t) < 0 ||
        !l->loop)
        return BROKEN;
    l->awaited_by_is_set = true;
    if (!t.state) /* its class says PENDING until it says something else */
        return KEEP;
    return str_equals(reading->view, reading->offsets, t.state, "PENDING") ? KEEP : DROP;
}

static enum outcome read_task(struct reading *reading, struct task *task, struct task_links *l)
{
    switch (reading_classify(reading, task->addr)) {
    case AWAITABLE_TASK: return read_c_task(reading, task, l);
    case AWAITABLE_PY_TASK: return read_py_task(reading, task, l);
    default: return l->listed ? BROKEN : DROP;
    }
}

/* Whether the future waited for is done, so that only the loop's turn is waited for. */
static bool is_done(struct reading *reading, uint64_t future)
{
    const struct asyncio *a = reading->origin->asyncio;
    uint64_t state;

    switch (reading_classify(reading, future)) {
    case AWAITABLE_TASK:
    case AWAITABLE_FUTURE: {
        if (!a->known)
            return false;
        const uint8_t *p = view_read(reading->view, future + (uint32_t)a->state, 4);
        return p && load32(p) != FUTURE_PENDING;
    }
    case AWAITABLE_PY_TASK:
    case AWAITABLE_PY_FUTURE:
        return instance_attribute(reading->view, reading->offsets, future, "_state", &state) == 0 &&
               !str_equals(reading->view, reading->offsets, state, "PENDING");
    default: return false;
    }
}

/* A name not yet asked for is an int: the number in "Task-%d". */
static uint32_t read_name(struct reading *reading, uint64_t name)
{
    struct text *strings = &reading->out->strings;
    uint32_t string = reading_string_begin(reading);
    int64_t number;

    int r = str_decode(reading->view, reading->offsets, name, TASK_NAME_MAX, strings);
    if (r == 1)
        text_puts(strings, "...");
    else if (r < 0 && int_to_i64(reading->view, reading->offsets, name, &number) == 0)
        text_printf(strings, "Task-%lld", (long long)number);
    else if (r < 0)
        text_puts(strings, "??");
    reading_string_end(reading);
    return string;
}

static uint32_t read_coro(struct reading *reading, uint64_t coro)
{
    struct text *strings = &reading->out->strings;
    uint64_t qualname;

    if (reading_classify(reading, coro) != AWAITABLE_COROUTINE ||
        !object_field(reading->view, coro, reading->offsets->gen_qualname, &qualname))
        return reading_describe(reading, coro);
    uint32_t string = reading_string_begin(reading);
    int r = str_decode(reading->view, reading->offsets, qualname, TASK_NAME_MAX, strings);
    if (r != 0)
        text_puts(strings, r > 0 ? "..." : "??");
    reading_string_end(reading);
    return string;
}

/* The thread that runs a loop: 3.14 on its state says, else the loop, if it derives from
 * asyncio.BaseEventLoop. */
static uint32_t loop_stack(struct reading *reading, uint64_t loop)
{
    const struct asyncio *a = reading->origin->asyncio;
    const struct walk *walk = reading->origin->walk;
    uint64_t value;
    int64_t ident;

    if (a->known && a->tstate_loop >= 0) {
        for (uint32_t i = 0; i < walk->n; i++)
            if (view_read64(reading->view, walk->stacks[i].tstate + (uint32_t)a->tstate_loop,
                            &value) &&
                value == loop)
                return (uint32_t)i;
        return TASKS_NONE;
    }
    if (instance_attribute(reading->view, reading->offsets, loop, "_thread_id", &value) < 0 ||
        int_to_i64(reading->view, reading->offsets, value, &ident) < 0)
        return TASKS_NONE;
    for (size_t i = 0; i < walk->n; i++)
        if (walk->stacks[i].thread_id == (uint64_t)ident)
            return (uint32_t)i;
    return TASKS_NONE;
}

static void set_place(const struct walk *walk, struct task_loop *loop)
{
    const struct stack *stack = loop->stack < walk->n ? &walk->stacks[loop->stack] : NULL;

    if (stack && stack->n && !stack->torn)
        loop->at = (struct task_frame){.addr = stack->frames[0].addr,
                                       .code = stack->frames[0].code,
                                       .lasti = stack->frames[0].lasti,
                                       .info = stack->frames[0].info,
                                       .next = TASKS_NONE,
                                       .jit = stack->frames[0].jit};
}

static void read_loops(struct reading *reading)
{
    struct tasks *out = reading->out;
    struct address_table known = {0};

    for (size_t i = 0; i < out->n && !reading->error && !reading_expired(reading); i++) {
        uint64_t loop = reading->links[i].loop;
        uint32_t number = address_table_find(&known, loop);
        if (number == TASKS_NONE && loop && !(loop & 7) && out->nloops < TASK_LOOPS_MAX) {
            void *loops = reading_grow(reading, out->loops, &out->loops_alloc, out->nloops + 1,
                                       sizeof *out->loops);
            if (!loops)
                break;
            out->loops = loops;
            number = (uint32_t)out->nloops++;
            out->loops[number] = (struct task_loop){
                .addr = loop,
                .interp = reading->links[i].interp,
                .stack = loop_stack(reading, loop),
                .type = reading_type_name(reading, loop),
            };
            set_place(reading->origin->walk, &out->loops[number]);
            address_table_add(&known, loop, number);
        }
        out->items[i].loop = number;
    }
    address_table_deinit(&known);
}

/* Closes the gaps of tasks that were dropped. */
static void keep(struct reading *reading, size_t n)
{
    struct tasks *out = reading->out;

    address_table_deinit(&reading->index);
    out->n = n;
    for (size_t i = 0; i < n; i++)
        if (!address_table_add(&reading->index, out->items[i].addr, (uint32_t)i))
            reading->error = -ENOMEM;
}

void tasks_read_fields(struct reading *reading)
{
    struct tasks *out = reading->out;
    size_t n = 0;

    for (size_t i = 0; i < out->n; i++)
        prefetch_want(&reading->prefetch, out->items[i].addr,
                      (uint32_t)reading->origin->asyncio->task_size);
    reading_fetch(reading);
    for (size_t i = 0; i < out->n && !reading->error && !reading_expired(reading); i++) {
        struct task task = out->items[i];
        struct task_links links = reading->links[i];
        enum outcome outcome = read_task(reading, &task, &links);
        if (outcome == DROP)
            continue;
        if (outcome == BROKEN)
            task.state = TASK_UNREADABLE;
        prefetch_want(&reading->prefetch, links.name, 64);
        prefetch_want(&reading->prefetch, links.coro, coroutine_size(reading->offsets));
        prefetch_want(&reading->prefetch, links.waiter, 128);
        prefetch_want(&reading->prefetch, links.loop, 64);
        out->items[n] = task;
        reading->links[n++] = links;
    }
    keep(reading, n);
    reading_fetch(reading);

    read_loops(reading);
    for (size_t i = 0; i < out->n && !reading->error && !reading_expired(reading); i++) {
        struct task *task = &out->items[i];
        struct task_links *l = &reading->links[i];
        if (task->state == TASK_UNREADABLE)
            continue;
        task->name = read_name(reading, l->name);
        task->coro = read_coro(reading, l->coro);
        task->coro_addr = l->coro;
        task->waiter = l->waiter;
        task->state = l->waiter && !is_done(reading, l->waiter) ? TASK_WAITING : TASK_READY;
        l->next = l->coro;
    }
}
