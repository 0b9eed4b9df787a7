#include "fs/file.h"
#include "fs/registry.h"

int reply_render(struct file_context *context, struct text *out)
{
    const struct reply_key key = {
        .file = context->file,
        .tid = context->tid,
        .depth = context->depth,
        .uid = context->caller->uid,
    };
    replies_render(&context->process->replies, &key, out);
    return 0;
}
