#include "fs/recording/held_threads.h"

#include "agent/base/cleanup.h"
#include "fs/link/found.h"
#include "fs/proc/lwp.h"
#include "fs/remote/since/since.h"

#include <errno.h>
#include <stdio.h>
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
                         .number = stop->number,
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
    *out = (struct held_list){.items = steal_pointer(items), .n = n};
    return 0;
}

/* -EFAULT and the like: then none are known. */
static int read_own(struct target *target, uint64_t address, const struct lwp_list *lwps,
                    struct held_list *out)
{
    int32_t tids[PROTO_OWN_MAX];

    int r = memory_read(&target->memory, address, tids, sizeof tids);
    for (size_t i = 0; r == 0 && i < PROTO_OWN_MAX; i++) {
        const struct lwp *lwp = target->foreign && tids[i] ? lwp_find_inner(lwps, tids[i]) : NULL;
        if (lwp || (!target->foreign && tids[i]))
            out->own[out->nown++] = lwp ? lwp->tid : tids[i];
    }
    return r;
}

static int read_pausing(struct target *target, uint64_t address, struct held_list *out)
{
    _cleanup_free_ struct probe_pause *pauses = malloc(PROBE_STOPS_MAX * sizeof *pauses);
    _cleanup_free_ uint64_t *items = malloc(PROBE_STOPS_MAX * sizeof *items);
    int r = pauses && items ? 0 : -ENOMEM;

    if (r == 0)
        r = memory_read(&target->memory, address, pauses, PROBE_STOPS_MAX * sizeof *pauses);
    for (size_t i = 0; r == 0 && i < PROBE_STOPS_MAX; i++)
        if (pauses[i].thread != PROBE_PAUSE_FREE && pauses[i].thread != PROBE_PAUSE_TAKEN)
            items[out->npausing++] = pauses[i].thread;
    if (out->npausing)
        out->pausing = steal_pointer(items);
    return r;
}

static int read_record(struct target *target, const struct probe_agent_record *record,
                       struct held_list *out)
{
    _cleanup_(lwp_list_deinit) struct lwp_list lwps = {0};
    bool stopped = record->stopped && record->stops;
    int r = stopped || target->foreign ? lwp_list_read(target->pid, LWP_STATES, &lwps) : 0;

    if (r == 0 && stopped)
        r = read_table(target, record->stops, &lwps, out);
    if (r == 0 && record->pauses)
        (void)read_pausing(target, record->pauses, out); /* else none are known */
    if (r == 0)
        (void)read_own(target, record->own, &lwps, out);
    return r;
}

/* -ENOENT: none runs. */
static int find_agent(struct target *target, struct recording *recording, struct found_agent *out)
{
    if (recording)
        return recording_agent(recording, out) ? found_agent_refresh(&target->memory, out)
                                               : -ENOENT;
    return found_agent_find(&target->memory, out);
}

int held_list_read(struct target *target, struct recording *recording, struct held_list *out)
{
    struct held_list list = {0};
    struct found_agent found;

    int r = find_agent(target, recording, &found);
    if (r == 0 && found.running)
        r = read_record(target, &found.record, &list);
    if (r < 0 && r != -ENOENT && r != -EOPNOTSUPP)
        return r;
    *out = list;
    return 0;
}

void held_list_deinit(struct held_list *list)
{
    free(list->items);
    free(list->pausing);
    *list = (struct held_list){0};
}

const struct held *held_find(const struct held_list *list, pid_t tid)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->items[i].tid == tid)
            return &list->items[i];
    return NULL;
}

bool held_is_pausing(const struct held_list *list, uint64_t thread)
{
    for (size_t i = 0; i < list->npausing; i++)
        if (list->pausing[i] == thread)
            return true;
    return false;
}

bool held_is_own(const struct held_list *list, pid_t tid)
{
    for (size_t i = 0; i < list->nown; i++)
        if (list->own[i] == tid)
            return true;
    return false;
}

void held_name(const struct held *held, char name[THREAD_HELD_MAX])
{
    static const char *const names[] = {[STOP_STEP] = "step",
                                        [STOP_RETURN] = "step",
                                        [STOP_PAUSE] = "pause",
                                        [STOP_CRASH] = "crash, see crash/"};

    if (held->id)
        snprintf(name, THREAD_HELD_MAX, "%s %u",
                 held->why == STOP_WATCH ? "watchpoint" : "breakpoint", held->id);
    else
        snprintf(name, THREAD_HELD_MAX, "%s", names[held->why] ? names[held->why] : "stop");
}

void held_mark(const struct held_list *list, pid_t tid, struct snapshot *snapshot)
{
    size_t n = 0;

    for (size_t i = 0; i < snapshot->nthreads; i++) {
        struct thread *thread = &snapshot->threads[i];
        const struct held *held = held_find(list, thread->tid);
        if (held)
            held_name(held, thread->held);
        if (thread->tid != tid && held_is_own(list, thread->tid))
            free(thread->frames);
        else
            snapshot->threads[n++] = *thread;
    }
    snapshot->nthreads = n;
}

int held_snapshot(struct target *target, struct recording *recording,
                  const struct snapshot_options *options, struct snapshot **out)
{
    _cleanup_(held_list_deinit) struct held_list list = {0};

    (void)held_list_read(target, recording, &list); /* else stacks are shown without */
    int r = snapshot_take(target, options, out);
    if (r < 0)
        return r;
    held_mark(&list, options->tid, *out);
    since_threads(target, *out);
    return 0;
}
