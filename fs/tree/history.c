/* history: how the file is doing that -o history=FILE names. */
#include "fs/history/history.h"
#include "fs/tree/file.h"

#include <errno.h>

int history_render(struct file_context *context, struct text *out)
{
    if (!context->history) {
        text_puts(&context->why, "the daemon keeps no history: start it with -o history=FILE");
        return -ENOENT;
    }
    history_status(context->history, out);
    return 0;
}

bool history_listed(const struct file_context *context) { return context->history; }
