/* threads/<tid>/backtrace: that thread's part of <pid>/backtrace. */
#include "agent/base/cleanup.h"
#include "fs/format/frames.h"
#include "fs/format/locks.h"
#include "fs/recording/held_threads.h"
#include "fs/tree/file.h"
#include "fs/tree/from_snapshot.h"

int thread_backtrace_render(struct file_context *context, struct text *out)
{
    _cleanup_(waits_reading_deinit) struct waits_reading reading = {.target = context->target};
    struct snapshot_options options = {.native = true, .tid = context->tid};
    struct snapshot *snapshot;

    waits_read_along(&reading, &options);
    int r = held_snapshot(context->target, context->recording, &options, &snapshot);
    if (r < 0)
        return snapshot_error(context, r);
    locks_mark(&reading.waits, snapshot);
    for (size_t i = 0; i < snapshot->nthreads; i++)
        thread_add_backtrace(&snapshot->threads[i], out);
    snapshot_free(snapshot);
    return 0;
}
