/* threads/<tid>/backtrace: that thread's part of <pid>/backtrace. */
#include "fs/file.h"
#include "fs/frame_text.h"
#include "fs/snapshot_error.h"

int thread_backtrace_render(struct file_context *context, struct text *out)
{
    const struct snapshot_options options = {.native = true, .tid = context->tid};
    struct snapshot *snapshot;

    int r = snapshot_take(context->target, &options, &snapshot);
    if (r < 0)
        return snapshot_error(context, r);
    for (size_t i = 0; i < snapshot->nthreads; i++)
        thread_add_backtrace(&snapshot->threads[i], out);
    snapshot_free(snapshot);
    return 0;
}
