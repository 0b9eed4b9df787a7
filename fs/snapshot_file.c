#include "fs/snapshot_file.h"

#include <errno.h>

int snapshot_error(struct file_context *context, int error)
{
    struct text *why = &context->why;

    switch (error) {
    case -ESRCH:
        text_puts(why, context->tid ? "the process or the thread has ended" : "the process has ended");
        break;
    case -EOPNOTSUPP:
        text_printf(why, "no Python stacks: %s; backtrace shows the native ones",
                    context->target->runtime.why);
        break;
    case -EPERM:
    case -EACCES:
        text_puts(why, "the kernel does not let the daemon read this process: run it as root or as the "
                       "target's user");
        break;
    case -ETIMEDOUT:
        text_puts(why, "the interpreter's lists of threads made no sense, however often they were read: "
                       "its memory is damaged, or it is just starting or ending; try again");
        break;
    }
    return error;
}

int snapshot_each_thread(struct file_context *context, bool native,
                         void (*add)(const struct thread *thread, struct text *out),
                         struct text *out)
{
    const struct snapshot_options options = {.native = native, .tid = context->tid};
    struct snapshot *snapshot;

    int r = snapshot_take(context->target, &options, &snapshot);
    if (r < 0)
        return snapshot_error(context, r);
    for (size_t i = 0; i < snapshot->nthreads; i++)
        add(&snapshot->threads[i], out);
    snapshot_free(snapshot);
    return 0;
}
