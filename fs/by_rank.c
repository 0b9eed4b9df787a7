#include "fs/by_rank.h"

#include "fs/cleanup.h"
#include "fs/registry.h"

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
    _cleanup_free_ struct process **processes = NULL;
    int64_t last = -1;
    size_t n;

    int r = registry_list(context->registry, &processes, &n);
    if (r < 0)
        return r;
    qsort(processes, n, sizeof *processes, by_rank_then_age);
    for (size_t i = 0; i < n; i++) {
        struct process *process = processes[i];
        if (r < 0 || process->rank == last || process->rank < 0) {
            process_unref(process);
            continue;
        }
        last = process->rank;
        r = numbers_add(out, (unsigned)last, process);
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
