#include "fs/tree/ranks.h"

#include "agent/base/cleanup.h"
#include "fs/process/registry.h"

#include <errno.h>

static int by_rank_then_age(const void *a, const void *b)
{
    const struct process *x = *(struct process *const *)a, *y = *(struct process *const *)b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->start_time != y->start_time)
        return x->start_time < y->start_time ? -1 : 1;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

static int ranks_list(struct file_context *context, struct numbers *out)
{
    _cleanup_(process_list_deinit) struct process_list list = {0};
    int64_t last = -1;

    int r = registry_list(context->registry, &list);
    if (r < 0 || !list.n)
        return r;
    qsort(list.items, list.n, sizeof *list.items, by_rank_then_age);
    for (size_t i = 0; r == 0 && i < list.n; i++) {
        if (list.items[i]->rank == last || list.items[i]->rank < 0)
            continue;
        last = list.items[i]->rank;
        r = numbers_add(out, (unsigned)last, steal_pointer(list.items[i]));
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
