#include "agent/base/cleanup.h"
#include "fs/process/replies.h"
#include "fs/tree/file.h"

#include <string.h>

static void add(struct file_context *context, struct text *out, time_t *when)
{
    const struct reply_key key = {
        .file = context->file,
        .tid = context->tid,
        .depth = context->depth,
        .uid = context->caller->uid,
    };
    replies_render(context->replies, &key, out, when);
}

int reply_render(struct file_context *context, struct text *out)
{
    add(context, out, NULL);
    return 0;
}

void reply_add_apart(struct file_context *context, bool (*is_state)(const char *line),
                     struct text *out)
{
    _cleanup_(text_deinit) struct text reply = TEXT_INIT;
    time_t when;

    add(context, &reply, &when);
    const char *rest = reply.data ? reply.data : "";
    while (is_state && is_state(rest))
        rest = strchr(rest, '\n') + 1;
    if (!*rest)
        return;
    text_puts(out, "\nLastReply: ");
    text_add_time(out, when);
    text_putc(out, '\n');
    text_puts(out, rest);
}
