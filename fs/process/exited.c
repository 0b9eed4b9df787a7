#include "fs/process/exited.h"

#include "agent/base/cleanup.h"
#include "fs/access/access.h"
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
    uid_t owner;
    size_t size; /* of its rings, bytes */
};

struct user_share {
    uid_t uid;
    size_t weight;
};

struct exited {
    pthread_mutex_t lock;
    const struct exited_limits *limits;
    struct item *items;        /* oldest first; room for limits->n and one more */
    struct user_share *shares; /* room for as many: who holds how much, while that is counted */
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
    exited->shares = calloc(limits->n + 1, sizeof *exited->shares);
    if (!exited->items || !exited->shares) {
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
    free(exited->shares);
    free(exited);
}

/* Lets go of its rings, and of nothing else. Caller holds lock. */
static void clear(struct item *item)
{
    recording_clear(item->process->recording);
    item->size = 0;
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

/* Which user holds the most bytes, or the most processes, and *all of all users. Caller holds lock.
 */
static uid_t heaviest(const struct exited *exited, bool by_bytes, size_t *all)
{
    size_t nshares = 0, most = 0;

    *all = 0;
    for (size_t i = 0; i < exited->n; i++) {
        const struct item *item = &exited->items[i];
        size_t weight = by_bytes ? item->size : 1, k = 0;
        while (k < nshares && exited->shares[k].uid != item->owner)
            k++;
        if (k == nshares)
            exited->shares[nshares++] = (struct user_share){.uid = item->owner};
        exited->shares[k].weight += weight;
        *all += weight;
    }
    for (size_t k = 1; k < nshares; k++)
        if (exited->shares[k].weight > exited->shares[most].weight)
            most = k;
    return exited->shares[most].uid;
}

/* Takes from who holds the most until there is no more than the limit. Caller holds lock. */
static void drop_most(struct exited *exited, bool by_bytes)
{
    size_t limit = by_bytes ? exited->limits->bytes : exited->limits->n, all;

    for (uid_t uid; uid = heaviest(exited, by_bytes, &all), all > limit;) {
        size_t i = 0;
        while (exited->items[i].owner != uid || (by_bytes && !exited->items[i].size))
            i++;
        if (by_bytes && i + 1 == exited->n)
            clear(&exited->items[i]);
        else
            remove_at(exited, i);
    }
}

/* The index of the process of a pid, or n. Caller holds lock. */
static size_t find(const struct exited *exited, pid_t pid)
{
    size_t i = 0;
    while (i < exited->n && exited->items[i].process->pid != pid)
        i++;
    return i;
}

void exited_add(struct exited *exited, struct process *process, uint64_t now)
{
    struct access_target left;
    struct item item = {
        .process = process_ref(process),
        .since = now,
        .owner = process_left(process, &left) && left.dumpable ? left.uid[1] : 0,
        .size = exited->limits->size(process->recording),
    };

    _guard_mutex_(&exited->lock);
    size_t i = find(exited, process->pid);
    if (i < exited->n)
        remove_at(exited, i);
    if (item.size > exited->limits->bytes)
        clear(&item);
    exited->items[exited->n++] = item;
    drop_old(exited, now);
    drop_most(exited, false);
    drop_most(exited, true);
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
