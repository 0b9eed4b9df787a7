#include "fs/process/replies.h"
#include "fs/tree/file.h"

int reply_render(struct file_context *context, struct text *out)
{
    const struct reply_key key = {
        .file = context->file,
        .tid = context->tid,
        .depth = context->depth,
        .credentials = context->principals->opener,
    };
    replies_render(context->replies, &key, out);
    return 0;
}
