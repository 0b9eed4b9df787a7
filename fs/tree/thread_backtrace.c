/* threads/<tid>/backtrace: that thread's part of <pid>/backtrace. */
#include "fs/format/frames.h"
#include "fs/tree/file.h"
#include "fs/tree/from_snapshot.h"

int thread_backtrace_render(struct file_context *context, struct text *out)
{
    return snapshot_each_thread(context, true, thread_add_backtrace, out);
}
