/* threads/<tid>/backtrace: that thread's part of <pid>/backtrace. */
#include "fs/file.h"
#include "fs/frame_text.h"
#include "fs/snapshot_file.h"

int thread_backtrace_render(struct file_context *context, struct text *out)
{
    return snapshot_each_thread(context, true, thread_add_backtrace, out);
}
