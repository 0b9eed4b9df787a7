#include "fs/tree/threads.h"

#include "fs/base/array.h"
#include "fs/proc/procfs.h"
#include "fs/process/process.h"
#include "fs/recording/held_threads.h"
#include "fs/remote/memory/core.h"
#include "fs/remote/moment/snapshot.h"
#include "fs/tree/from_snapshot.h"

#include <errno.h>
#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    const struct number *x = a, *y = b;
    return (x->value > y->value) - (x->value < y->value);
}

struct listing {
    struct numbers *numbers;
    struct held_list
        agent; /* whose own threads aren't the program's: they are there by name only */
};

static int add_tid(void *arg, int tasks, pid_t tid)
{
    struct listing *listing = arg;

    if (held_is_own(&listing->agent, tid))
        return 0;
    return numbers_add(listing->numbers, (unsigned)tid, NULL);
}

static int list_core(const struct core *core, struct numbers *out)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < core->lwps.n; i++)
        r = numbers_add(out, (unsigned)core->lwps.items[i].tid, NULL);
    return r;
}

static int tids_list(struct file_context *context, struct numbers *out)
{
    struct listing listing = {.numbers = out};

    (void)held_list_read(context->target, context->recording, &listing.agent);
    int r = context->target->core ? list_core(context->target->core, out)
                                  : proc_each_task(context->target->pid, add_tid, &listing);
    held_list_deinit(&listing.agent);
    if (out->n)
        array_sort(out->items, out->n, sizeof *out->items, by_value);
    return r;
}

static int tids_find(struct file_context *context, unsigned value)
{
    pid_t tid = (pid_t)value;

    if (context->target && context->target->core)
        return core_thread(context->target->core, tid) ? 0 : -ENOENT;
    return proc_has_thread(context->process->pid, tid) ? 0 : -ENOENT;
}

const struct naming tids = {NUMBER_TID, tids_list, tids_find};

static int count_frames(void *arg, struct view *view, const struct raw_stack *stack)
{
    *(size_t *)arg = stack->nframes;
    return 0;
}

static int depths_list(struct file_context *context, struct numbers *out)
{
    size_t n = 0;

    int r = snapshot_visit(context->target, context->tid, count_frames, &n);
    for (size_t i = 0; r == 0 && i < n && i < DEPTHS_LISTED_MAX; i++)
        r = numbers_add(out, (unsigned)i, NULL);
    return r == -EOPNOTSUPP ? 0 : r;
}

static int depths_find(struct file_context *context, unsigned value)
{
    size_t n = 0;

    int r = snapshot_visit(context->target, context->tid, count_frames, &n);
    if (r < 0)
        return snapshot_error(context, r);
    return value < n ? 0 : -ENOENT;
}

const struct naming depths = {NUMBER_DEPTH, depths_list, depths_find};
