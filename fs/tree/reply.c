#include "agent/base/cleanup.h"
#include "fs/process/replies.h"
#include "fs/tree/file.h"

#include <string.h>

static struct reply_key key_of(const struct file_context *context)
{
    return (struct reply_key){
        .file = context->file,
        .tid = context->tid,
        .depth = context->depth,
        .word = context->word,
        .credentials = context->principals->opener,
    };
}

int reply_render(struct file_context *context, struct text *out)
{
    const struct reply_key key = key_of(context);

    replies_render(context->replies, &key, out);
    return 0;
}

void reply_add_apart(struct file_context *context, bool (*is_state)(const char *line),
                     struct text *out)
{
    _cleanup_(text_deinit) struct text reply = TEXT_INIT;
    const struct reply_key key = key_of(context);
    struct timespec when = {0};

    replies_render(context->replies, &key, &reply);
    replies_changed(context->replies, &key, &when);
    const char *rest = reply.data ? reply.data : "";
    while (is_state && is_state(rest))
        rest = strchr(rest, '\n') + 1;
    if (!*rest)
        return;
    text_puts(out, "\nLastReply: ");
    text_add_time(out, when.tv_sec);
    text_putc(out, '\n');
    text_puts(out, rest);
}
