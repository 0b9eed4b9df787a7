#include "fs/tree/ranks.h"

#include "agent/base/cleanup.h"
#include "fs/access/access.h"
#include "fs/proc/procfs.h"
#include "fs/process/registry.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define GENERATIONS_MAX 64 /* of parents that are looked at */

/* Several may say that they are of one rank: which of them a caller means. */
enum { OWN, VISIBLE, OTHER };

struct ranked {
    const struct process *process;
    size_t index; /* in the list */
    int whose;
};

/* Ascending by rank, the caller's own first, and of these the newest. */
static int by_rank_then_age(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    const struct process *p = x->process, *q = y->process;

    if (p->rank != q->rank)
        return p->rank < q->rank ? -1 : 1;
    if (x->whose != y->whose)
        return x->whose - y->whose;
    if (p->start_time != q->start_time)
        return p->start_time > q->start_time ? -1 : 1;
    return (p->pid < q->pid) - (p->pid > q->pid);
}

static int whose(const struct file_context *context, struct access_caller *caller,
                 const struct process *process)
{
    struct stat owner;
    char path[32];

    snprintf(path, sizeof path, "/proc/%d", process->pid);
    if (stat(path, &owner) == 0 && owner.st_uid == context->caller->uid)
        return OWN;
    return access_look(context->access, caller, process->pid) == 0 ? VISIBLE : OTHER;
}

static bool has(const struct ranked *ranked, size_t n, pid_t pid)
{
    for (size_t i = 0; i < n; i++)
        if (ranked[i].process->pid == pid)
            return true;
    return false;
}

/* Whether one of the processes, which have the same rank, got that from another of them: it is no
 * rank's own process then but a worker of one, say. */
static bool descends(const struct ranked *ranked, size_t n, pid_t pid)
{
    struct proc_stat stat;

    for (int i = 0; i < GENERATIONS_MAX && proc_stat_read(pid, &stat) == 0; i++) {
        pid = stat.ppid;
        if (pid <= 1)
            break;
        if (has(ranked, n, pid))
            return true;
    }
    return false;
}

/* Of processes with the same rank, the best first: that of the job which started last. */
static const struct ranked *choose(const struct ranked *ranked, size_t n)
{
    for (size_t i = 0; n > 1 && i < n && ranked[i].whose == ranked[0].whose; i++)
        if (!descends(ranked, n, ranked[i].process->pid))
            return &ranked[i];
    return &ranked[0];
}

static int ranks_list(struct file_context *context, struct numbers *out)
{
    _cleanup_(process_list_deinit) struct process_list list = {0};
    _cleanup_free_ struct ranked *ranked = NULL;
    struct access_caller caller;
    size_t n = 0;

    int r = registry_list(context->registry, &list);
    if (r < 0 || !list.n)
        return r;
    ranked = calloc(list.n, sizeof *ranked);
    if (!ranked)
        return -ENOMEM;
    access_read_caller(context->caller, &caller);
    for (size_t i = 0; i < list.n; i++)
        if (list.items[i]->rank >= 0)
            ranked[n++] = (struct ranked){list.items[i], i, whose(context, &caller, list.items[i])};
    qsort(ranked, n, sizeof *ranked, by_rank_then_age);
    for (size_t i = 0, same; r == 0 && i < n; i += same) {
        int64_t rank = ranked[i].process->rank;
        for (same = 1; i + same < n && ranked[i + same].process->rank == rank; same++)
            ;
        const struct ranked *one = choose(&ranked[i], same);
        r = numbers_add(out, (unsigned)rank, steal_pointer(list.items[one->index]));
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
