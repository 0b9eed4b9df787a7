#include "fs/tree/ranks.h"

#include "agent/base/cleanup.h"
#include "fs/proc/procfs.h"
#include "fs/process/registry.h"

#include <errno.h>

#define GENERATIONS_MAX 64 /* of parents that are looked at */

/* Ascending by rank, and the newest first. */
static int by_rank_then_age(const void *a, const void *b)
{
    const struct process *x = *(struct process *const *)a, *y = *(struct process *const *)b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->start_time != y->start_time)
        return x->start_time > y->start_time ? -1 : 1;
    return (x->pid < y->pid) - (x->pid > y->pid);
}

static bool has(struct process *const *processes, size_t n, pid_t pid)
{
    for (size_t i = 0; i < n; i++)
        if (processes[i]->pid == pid)
            return true;
    return false;
}

/* Whether one of the processes, which have the same rank, got that from another of them: it is no
 * rank's own process then but a worker of one, say. */
static bool descends(struct process *const *processes, size_t n, pid_t pid)
{
    struct proc_stat stat;

    for (int i = 0; i < GENERATIONS_MAX && proc_stat_read(pid, &stat) == 0; i++) {
        pid = stat.ppid;
        if (pid <= 1)
            break;
        if (has(processes, n, pid))
            return true;
    }
    return false;
}

/* Of processes with the same rank, the newest first: that of the job which started last. */
static struct process **choose(struct process **processes, size_t n)
{
    for (size_t i = 0; n > 1 && i < n; i++)
        if (!descends(processes, n, processes[i]->pid))
            return &processes[i];
    return &processes[0];
}

static int ranks_list(struct file_context *context, struct numbers *out)
{
    _cleanup_(process_list_deinit) struct process_list list = {0};

    int r = registry_list(context->registry, &list);
    if (r < 0 || !list.n)
        return r;
    qsort(list.items, list.n, sizeof *list.items, by_rank_then_age);
    for (size_t i = 0, n; r == 0 && i < list.n; i += n) {
        int64_t rank = list.items[i]->rank;
        for (n = 1; i + n < list.n && list.items[i + n]->rank == rank; n++)
            ;
        if (rank >= 0)
            r = numbers_add(out, (unsigned)rank, steal_pointer(*choose(list.items + i, n)));
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
