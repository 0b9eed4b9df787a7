/* The stack of each task, outermost first: its coroutine, what that awaits, and so on; of one that
 * runs, the frames of its thread from its coroutine inwards. */
#include "fs/remote/tasks/tasks_reading.h"

static void add_frame(struct reading *reading, uint32_t t, const struct task_frame *frame)
{
    struct tasks *out = reading->out;
    struct task *task = &out->items[t];
    struct task_links *l = &reading->links[t];

    if (task->nframes >= TASK_FRAMES_MAX || out->nframes >= TASKS_FRAMES_TOTAL) {
        task->cut = true;
        l->next = 0;
        return;
    }
    void *frames = reading_grow(reading, out->frames, &out->frames_alloc, out->nframes + 1,
                                sizeof *out->frames);
    if (!frames)
        return;
    out->frames = frames;
    uint32_t f = (uint32_t)out->nframes++;
    out->frames[f] = *frame;
    out->frames[f].next = TASKS_NONE;
    if (l->last == TASKS_NONE)
        task->frames = f;
    else
        out->frames[l->last].next = f;
    l->last = f;
    task->nframes++;
}

/* What stands at the end of a chain. The future that the task waits for says more than the
 * generator or iterator that yielded it. */
static void end_chain(struct reading *reading, uint32_t t, uint64_t object)
{
    struct task *task = &reading->out->items[t];
    uint64_t awaited = reading->links[t].waiter ? reading->links[t].waiter : object;

    reading->links[t].next = 0;
    if (!awaited || address_table_find(&reading->index, awaited) != TASKS_NONE)
        return;
    if (task->state == TASK_WAITING || object)
        task->awaits = reading_describe(reading, awaited);
}

static void follow_coroutine(struct reading *reading, uint32_t t, uint64_t object)
{
    struct task *task = &reading->out->items[t];
    struct task_links *l = &reading->links[t];
    struct coroutine coroutine;

    if (coroutine_read(reading->view, reading->offsets, object, &coroutine) < 0) {
        task->torn = true;
        l->next = 0;
        return;
    }
    if (coroutine.finished) {
        l->next = 0;
        return;
    }
    if (coroutine.executing) {
        task->state = TASK_RUNNING;
        l->executing = coroutine;
        l->next = 0; /* its frames come from the thread */
        return;
    }
    l->next = coroutine.awaits;
    add_frame(reading, t, &(struct task_frame){coroutine.frame, coroutine.code, coroutine.lasti});
    if (coroutine.torn)
        task->torn = true;
    else if (!coroutine.awaits)
        end_chain(reading, t, 0);
}

/* Follows one link of a task's chain. */
static void follow(struct reading *reading, uint32_t t)
{
    struct task_links *l = &reading->links[t];
    uint64_t object = l->next;

    /* a wrapper may stand for a wrapper: anext() with a default, of an asynchronous generator */
    for (unsigned i = 0; i < 4; i++) {
        switch (reading_classify(reading, object)) {
        case AWAITABLE_COROUTINE: follow_coroutine(reading, t, object); return;
        case AWAITABLE_WRAPPER:
        case AWAITABLE_FUTURE_ITER:
            if (awaitable_unwrap(reading->view, reading->offsets, object, &object))
                continue;
            reading->out->items[t].torn = true;
            l->next = 0;
            return;
        default: end_chain(reading, t, object); return;
        }
    }
    end_chain(reading, t, object);
}

/* The frames from one that a task's coroutine runs in, inwards to the next such one. A task whose
 * first step is eager has the task that made it further out on the same stack. */
static void read_stack(struct reading *reading, const struct stack *stack,
                       const struct address_table *executing)
{
    size_t inner = 0;

    for (size_t i = 0; i < stack->n; i++) {
        uint32_t t = address_table_find(executing, stack->frames[i].addr);
        if (t == TASKS_NONE)
            continue;
        for (size_t k = i + 1; k-- > inner;)
            add_frame(reading, t,
                      &(struct task_frame){stack->frames[k].addr, stack->frames[k].code,
                                           stack->frames[k].lasti, stack->frames[k].info,
                                           .jit = stack->frames[k].jit});
        reading->out->items[t].torn |= stack->torn && !inner;
        inner = i + 1;
    }
}

static void read_running(struct reading *reading)
{
    struct tasks *out = reading->out;
    const struct walk *walk = reading->origin->walk;
    struct address_table executing = {0};

    for (uint32_t t = 0; t < out->n; t++)
        if (reading->links[t].executing.frame)
            address_table_add(&executing, reading->links[t].executing.frame, t);
    for (size_t i = 0; executing.n && i < walk->n; i++)
        read_stack(reading, &walk->stacks[i], &executing);
    address_table_deinit(&executing);
    for (uint32_t t = 0; t < out->n && !reading->error; t++) {
        const struct coroutine *c = &reading->links[t].executing;
        if (c->frame && !out->items[t].nframes) /* just being entered or left: on no stack */
            add_frame(reading, t, &(struct task_frame){c->frame, c->code, c->lasti});
    }
}

void tasks_read_chains(struct reading *reading)
{
    struct tasks *out = reading->out;
    uint32_t size = coroutine_size(reading->offsets);

    for (bool more = true; more && !reading->error && !reading_expired(reading);) {
        more = false;
        for (uint32_t t = 0; t < out->n; t++)
            if (reading->links[t].next)
                prefetch_want(&reading->prefetch, reading->links[t].next, size + 64);
        reading_fetch(reading);
        for (uint32_t t = 0; t < out->n && !reading->error; t++)
            if (reading->links[t].next) {
                follow(reading, t);
                more |= reading->links[t].next != 0;
            }
    }
    read_running(reading);
    for (uint32_t t = 0; t < out->n; t++) {
        out->items[t].cut |= reading->links[t].next != 0; /* out of time */
        out->torn |= out->items[t].torn;
    }
}
