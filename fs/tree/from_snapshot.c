#include "fs/tree/from_snapshot.h"

#include "fs/format/backtrace.h"
#include "fs/recording/held_threads.h"

#include <errno.h>

int snapshot_error(struct file_context *context, int error)
{
    return snapshot_explain(context->target, context->tid, error, &context->why);
}

int snapshot_each_thread(struct file_context *context, bool native,
                         void (*add)(const struct thread *thread, struct text *out),
                         struct text *out)
{
    const struct snapshot_options options = {.native = native, .tid = context->tid};
    struct snapshot *snapshot;

    int r = held_snapshot(context->target, context->recording, &options, &snapshot);
    if (r < 0)
        return snapshot_error(context, r);
    for (size_t i = 0; i < snapshot->nthreads; i++)
        add(&snapshot->threads[i], out);
    snapshot_free(snapshot);
    return 0;
}

int snapshot_find_thread(struct file_context *context, pid_t tid, uint64_t *thread, int64_t *interp)
{
    const struct snapshot_options options = {.tid = tid};
    _cleanup_(cleanup_snapshot) struct snapshot *snapshot = NULL;

    int r = snapshot_take(context->target, &options, &snapshot);
    if (r < 0)
        return snapshot_error(context, r);
    for (size_t i = 0; i < snapshot->nthreads; i++) {
        const struct thread *one = &snapshot->threads[i];
        if (one->tid != tid || !one->tstate)
            continue;
        *thread = one->thread_id;
        *interp = one->interp_id;
        return 0;
    }
    text_puts(&context->why, "this thread runs no Python");
    return -EINVAL;
}
