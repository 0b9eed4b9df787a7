/* <pid>/stacks.folded, backtrace.python and stacks.python.folded. */
#include "fs/format/stacks.h"
#include "fs/tree/file.h"

int stacks_folded_render(struct file_context *context, struct text *out)
{
    return stacks_folded_text(context->target, context->recording, &context->why, out);
}

int stacks_python_folded_render(struct file_context *context, struct text *out)
{
    return stacks_python_folded_text(context->target, context->recording, &context->why, out);
}

int backtrace_python_render(struct file_context *context, struct text *out)
{
    return stacks_python_text(context->target, context->recording, &context->why, out);
}
