/* <pid>/backtrace: all threads, Python and native frames merged, innermost first. */
#include "fs/format/backtrace.h"
#include "fs/tree/file.h"

int backtrace_render(struct file_context *context, struct text *out)
{
    return backtrace_text(context->target, context->recording, &context->why, out);
}
