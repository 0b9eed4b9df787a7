#include "fs/process/exited.h"

#include "agent/base/cleanup.h"
#include "fs/base/array.h"

#include <errno.h>
#include <string.h>

const struct exited_limits exited_limits = {
    .age = 3600000000000ull,
    .bytes = 256u << 20,
    .n = 1024,
    .size = recording_size,
};

struct item {
    struct process *process; /* a reference */
    uint64_t since;          /* CLOCK_MONOTONIC, ns */
};

struct exited {
    pthread_mutex_t lock;
    const struct exited_limits *limits;
    struct item *items; /* oldest first; room for limits->n and one more */
    size_t n;
};

int exited_new(const struct exited_limits *limits, struct exited **out)
{
    struct exited *exited = calloc(1, sizeof *exited);
    if (!exited)
        return -ENOMEM;
    pthread_mutex_init(&exited->lock, NULL);
    exited->limits = limits;
    exited->items = calloc(limits->n + 1, sizeof *exited->items);
    if (!exited->items) {
        exited_free(exited);
        return -ENOMEM;
    }
    *out = exited;
    return 0;
}

/* Caller holds lock. */
static void remove_at(struct exited *exited, size_t i)
{
    struct process *process = exited->items[i].process;

    exited->n--;
    memmove(&exited->items[i], &exited->items[i + 1], (exited->n - i) * sizeof *exited->items);
    recording_clear(process->recording);
    process_unref(process);
}

void exited_free(struct exited *exited)
{
    if (!exited)
        return;
    while (exited->n)
        remove_at(exited, exited->n - 1);
    pthread_mutex_destroy(&exited->lock);
    free(exited->items);
    free(exited);
}

/* Caller holds lock. */
static bool too_old(const struct exited *exited, const struct item *item, uint64_t now)
{
    return now > item->since && now - item->since >= exited->limits->age;
}

/* Caller holds lock. */
static void drop_old(struct exited *exited, uint64_t now)
{
    while (exited->n && too_old(exited, &exited->items[0], now))
        remove_at(exited, 0);
}

/* Caller holds lock. */
static void drop_large(struct exited *exited)
{
    const struct exited_limits *limits = exited->limits;
    size_t used = 0;

    for (size_t i = exited->n; i-- > 0;) {
        size_t size = limits->size(exited->items[i].process->recording);
        if (used + size <= limits->bytes) {
            used += size;
            continue;
        }
        if (i + 1 == exited->n) { /* the last one by itself */
            recording_clear(exited->items[i].process->recording);
            continue;
        }
        for (size_t older = 0; older <= i; older++)
            remove_at(exited, 0);
        return;
    }
}

/* Where the one of that pid is, or n. Caller holds lock. */
static size_t find(const struct exited *exited, pid_t pid)
{
    size_t i = 0;
    while (i < exited->n && exited->items[i].process->pid != pid)
        i++;
    return i;
}

void exited_add(struct exited *exited, struct process *process, uint64_t now)
{
    _guard_mutex_(&exited->lock);
    size_t i = find(exited, process->pid);

    if (i < exited->n)
        remove_at(exited, i);
    exited->items[exited->n++] = (struct item){process_ref(process), now};
    drop_old(exited, now);
    if (exited->n > exited->limits->n)
        remove_at(exited, 0);
    drop_large(exited);
}

uint64_t exited_sweep(struct exited *exited, uint64_t now)
{
    _guard_mutex_(&exited->lock);
    drop_old(exited, now);
    return exited->n ? exited->items[0].since + exited->limits->age - now : UINT64_MAX;
}

bool exited_drop(struct exited *exited, struct process *process)
{
    _guard_mutex_(&exited->lock);
    size_t i = find(exited, process->pid);

    if (i == exited->n || exited->items[i].process != process)
        return false;
    remove_at(exited, i);
    return true;
}

struct process *exited_find(struct exited *exited, pid_t pid, uint64_t now)
{
    _guard_mutex_(&exited->lock);
    drop_old(exited, now);
    size_t i = find(exited, pid);
    return i < exited->n ? process_ref(exited->items[i].process) : NULL;
}

int exited_list(struct exited *exited, uint64_t now, struct process_list *out)
{
    struct process_list list = {0};

    _guard_mutex_(&exited->lock);
    drop_old(exited, now);
    if (ARRAY_GROW(list.items, list.alloc, exited->n) < 0)
        return -ENOMEM;
    while (list.n < exited->n) {
        list.items[list.n] = process_ref(exited->items[list.n].process);
        list.n++;
    }
    process_list_sort(&list);
    *out = list;
    return 0;
}

bool exited_has(struct exited *exited, const struct process *process)
{
    _guard_mutex_(&exited->lock);
    size_t i = find(exited, process->pid);
    return i < exited->n && exited->items[i].process == process;
}
