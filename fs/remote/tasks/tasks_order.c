/* Brings what was read into the order that tasks.h promises. */
#include "fs/remote/tasks/tasks.h"

#include "agent/base/cleanup.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

/* strcmp() that takes runs of digits for numbers: Task-9 stands before Task-10. */
static int compare_names(const char *a, const char *b)
{
    while (*a && *b) {
        if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
            a += strspn(a, "0");
            b += strspn(b, "0");
            size_t m = strspn(a, "0123456789"), n = strspn(b, "0123456789");
            int r = m != n ? (m < n ? -1 : 1) : memcmp(a, b, m);
            if (r)
                return r;
            a += m;
            b += n;
        } else if (*a != *b) {
            break;
        } else {
            a++, b++;
        }
    }
    return (unsigned char)*a - (unsigned char)*b;
}

static int by_thread(const void *a, const void *b, void *arg)
{
    const struct tasks *tasks = arg;
    const struct task_loop *x = &tasks->loops[*(const uint32_t *)a];
    const struct task_loop *y = &tasks->loops[*(const uint32_t *)b];

    if (x->tid != y->tid) /* those that don't run last */
        return !x->tid ? 1 : !y->tid ? -1 : x->tid < y->tid ? -1 : 1;
    return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static int by_loop_and_age(const void *a, const void *b, void *arg)
{
    const struct tasks *tasks = arg;
    const struct task *x = &tasks->items[*(const uint32_t *)a];
    const struct task *y = &tasks->items[*(const uint32_t *)b];

    if (x->loop != y->loop)
        return x->loop < y->loop ? -1 : 1;
    if (x->order != y->order)
        return x->order < y->order ? -1 : 1;
    int r = compare_names(tasks_string(tasks, x->name), tasks_string(tasks, y->name));
    return r ? r : x->addr < y->addr ? -1 : x->addr > y->addr;
}

static int by_awaiter(const void *a, const void *b)
{
    const struct task_edge *x = a, *y = b;
    if (x->awaiter != y->awaiter)
        return x->awaiter < y->awaiter ? -1 : 1;
    return x->task < y->task ? -1 : x->task > y->task;
}

/* Sorts an array of n items of `size` bytes: places[old index] = new index. */
static int arrange(struct tasks *tasks, void *array, size_t n, size_t size,
                   int (*compare)(const void *, const void *, void *), uint32_t *places)
{
    _cleanup_free_ uint32_t *order = calloc(n + 1, sizeof *order);
    _cleanup_free_ uint8_t *copy = malloc(n * size + 1);

    if (!order || !copy)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    qsort_r(order, n, sizeof *order, compare, tasks);
    if (n)
        memcpy(copy, array, n * size);
    for (size_t i = 0; i < n; i++) {
        memcpy((uint8_t *)array + i * size, copy + order[i] * size, size);
        places[order[i]] = (uint32_t)i;
    }
    return 0;
}

/* Brings loops, tasks and edges into order; each task gets its run of edges. */
static int sort(struct tasks *tasks)
{
    size_t most = tasks->n > tasks->nloops ? tasks->n : tasks->nloops;
    _cleanup_free_ uint32_t *places = calloc(most + 1, sizeof *places);
    size_t unique = 0;

    if (!places)
        return -ENOMEM;
    int r = arrange(tasks, tasks->loops, tasks->nloops, sizeof *tasks->loops, by_thread, places);
    if (r < 0)
        return r;
    for (size_t i = 0; i < tasks->n; i++)
        if (tasks->items[i].loop != TASKS_NONE)
            tasks->items[i].loop = places[tasks->items[i].loop];
    r = arrange(tasks, tasks->items, tasks->n, sizeof *tasks->items, by_loop_and_age, places);
    if (r < 0)
        return r;
    for (size_t i = 0; i < tasks->nedges; i++) {
        tasks->edges[i].awaiter = places[tasks->edges[i].awaiter];
        tasks->edges[i].task = places[tasks->edges[i].task];
    }
    if (tasks->nedges)
        qsort(tasks->edges, tasks->nedges, sizeof *tasks->edges, by_awaiter);
    for (size_t i = 0; i < tasks->nedges; i++) {
        const struct task_edge *e = &tasks->edges[i];
        if (unique && !by_awaiter(e, &tasks->edges[unique - 1]))
            continue;
        struct task *awaiter = &tasks->items[e->awaiter];
        if (!awaiter->nawaiting)
            awaiter->awaiting = (uint32_t)unique;
        awaiter->nawaiting++;
        tasks->items[e->task].nawaiters++;
        tasks->edges[unique++] = *e;
    }
    tasks->nedges = unique;
    return 0;
}

int tasks_finish(struct tasks *tasks, struct code_cache *codes, const struct memory *memory,
                 const struct offsets *offsets)
{
    int r = code_cache_load(codes, memory, offsets);
    return r < 0 ? r : sort(tasks);
}
