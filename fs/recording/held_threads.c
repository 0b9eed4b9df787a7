#include "fs/recording/held_threads.h"

#include "agent/base/cleanup.h"
#include "fs/link/found.h"
#include "fs/proc/lwp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct probe_stop stop_table[PROBE_STOPS_MAX];

static int by_tid(const void *a, const void *b)
{
    const struct held *x = a, *y = b;
    return (x->tid > y->tid) - (x->tid < y->tid);
}

/* -ENOENT: it was being changed, or is free, or makes no sense. */
static int read_one(const struct probe_stop *stop, const struct probe_stop *again,
                    const struct lwp_list *lwps, struct held *out)
{
    if (stop->change % 2 || stop->change != again->change || stop->why == STOP_NONE ||
        stop->why > STOP_CRASH)
        return -ENOENT;
    const struct lwp *lwp = lwp_find_inner(lwps, stop->tid);
    if (!lwp)
        return -ENOENT;
    *out = (struct held){.tid = lwp->tid,
                         .why = (enum stop_why)stop->why,
                         .id = stop->id,
                         .line = stop->line,
                         .since_ns = stop->since_ns,
                         .until_ns = stop->until_ns};
    return 0;
}

/* Twice: what has changed meanwhile has another number. */
static int read_table(struct target *target, uint64_t address, const struct lwp_list *lwps,
                      struct held_list *out)
{
    _cleanup_free_ stop_table *tables = malloc(2 * sizeof *tables);
    _cleanup_free_ struct held *items = malloc(PROBE_STOPS_MAX * sizeof *items);
    size_t n = 0;
    int r = tables && items ? 0 : -ENOMEM;

    for (size_t i = 0; i < 2 && r == 0; i++)
        r = memory_read(&target->memory, address, &tables[i], sizeof tables[i]);
    if (r < 0)
        return r;
    for (size_t i = 0; i < PROBE_STOPS_MAX; i++)
        if (read_one(&tables[0][i], &tables[1][i], lwps, &items[n]) == 0)
            n++;
    qsort(items, n, sizeof *items, by_tid);
    *out = (struct held_list){steal_pointer(items), n};
    return 0;
}

int held_list_read(struct target *target, struct held_list *out)
{
    _cleanup_(lwp_list_deinit) struct lwp_list lwps = {0};
    struct held_list list = {0};
    struct found_agent found;

    int r = found_agent_find(&target->memory, &found);
    if (r == 0 && found.running && found.record.stopped && found.record.stops) {
        r = lwp_list_read(target->pid, false, &lwps);
        if (r == 0)
            r = read_table(target, found.record.stops, &lwps, &list);
    }
    if (r < 0 && r != -ENOENT && r != -EOPNOTSUPP)
        return r;
    *out = list;
    return 0;
}

void held_list_deinit(struct held_list *list)
{
    free(list->items);
    *list = (struct held_list){0};
}

const struct held *held_find(const struct held_list *list, pid_t tid)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->items[i].tid == tid)
            return &list->items[i];
    return NULL;
}
