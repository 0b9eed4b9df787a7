#include "fs/tree/ranks.h"

#include "agent/base/cleanup.h"
#include "fs/access/access.h"
#include "fs/process/registry.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* Several may say that they are of one rank: which of them a caller means. */
enum { OWN, VISIBLE, OTHER };

struct ranked {
    const struct process *process;
    size_t index; /* in the list */
    int whose;
};

static int by_rank_then_age(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    const struct process *p = x->process, *q = y->process;

    if (p->rank != q->rank)
        return p->rank < q->rank ? -1 : 1;
    if (x->whose != y->whose)
        return x->whose - y->whose;
    if (p->start_time != q->start_time)
        return p->start_time < q->start_time ? -1 : 1;
    return (p->pid > q->pid) - (p->pid < q->pid);
}

static int whose(const struct file_context *context, const struct process *process)
{
    struct stat owner;
    char path[32];

    snprintf(path, sizeof path, "/proc/%d", process->pid);
    if (stat(path, &owner) == 0 && owner.st_uid == context->caller->uid)
        return OWN;
    return access_ask(context->access, context->caller, process->pid) == 0 ? VISIBLE : OTHER;
}

static int ranks_list(struct file_context *context, struct numbers *out)
{
    _cleanup_(process_list_deinit) struct process_list list = {0};
    _cleanup_free_ struct ranked *ranked = NULL;
    int64_t last = -1;
    size_t n = 0;

    int r = registry_list(context->registry, &list);
    if (r < 0 || !list.n)
        return r;
    ranked = calloc(list.n, sizeof *ranked);
    if (!ranked)
        return -ENOMEM;
    for (size_t i = 0; i < list.n; i++)
        if (list.items[i]->rank >= 0)
            ranked[n++] = (struct ranked){list.items[i], i, whose(context, list.items[i])};
    qsort(ranked, n, sizeof *ranked, by_rank_then_age);
    for (size_t i = 0; r == 0 && i < n; i++) {
        if (ranked[i].process->rank == last)
            continue;
        last = ranked[i].process->rank;
        r = numbers_add(out, (unsigned)last, steal_pointer(list.items[ranked[i].index]));
    }
    return r;
}

static int ranks_find(struct file_context *context, unsigned value)
{
    struct numbers all = {0};

    int r = ranks_list(context, &all);
    for (size_t i = 0; i < all.n && !context->process; i++)
        if (all.items[i].value == value)
            context->process = process_ref(all.items[i].process);
    numbers_deinit(&all);
    return r < 0 ? r : context->process ? 0 : -ENOENT;
}

int rank_render(struct file_context *context, struct text *out)
{
    if (!process_alive(context->process))
        return -ENOENT;
    text_printf(out, "../%d", context->process->pid);
    return 0;
}

const struct naming ranks = {NUMBER_RANK, ranks_list, ranks_find};
