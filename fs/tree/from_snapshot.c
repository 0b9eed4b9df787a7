#include "fs/tree/from_snapshot.h"

#include "fs/format/backtrace.h"
#include "fs/process/process.h"
#include "fs/recording/held_threads.h"
#include "fs/trace/claims.h"

#include <errno.h>

int snapshot_error(struct file_context *context, int error)
{
    return snapshot_explain(context->target, context->tid, error, &context->why);
}

int snapshot_each_thread(struct file_context *context, bool native,
                         void (*add)(const struct thread *thread, struct text *out),
                         struct text *out)
{
    const struct snapshot_options options = {.native = native, .tid = context->tid};
    struct snapshot *snapshot;

    int r = held_snapshot(context->target, context->recording, &options, &snapshot);
    if (r < 0)
        return snapshot_error(context, r);
    for (size_t i = 0; i < snapshot->nthreads; i++)
        add(&snapshot->threads[i], out);
    snapshot_free(snapshot);
    return 0;
}

int snapshot_find(struct file_context *context)
{
    int r = target_find(context->target);
    return r < 0 ? snapshot_error(context, r == -ENOENT ? -ESRCH : r) : 0;
}

/* Who reads the context's process; NULL: this daemon. Only who traces it can stop its threads. */
static const struct examiner *examiner_of(const struct file_context *context)
{
    return claim_exists(context->process->pid) ? NULL : context->process->examiner;
}

int snapshot_ask(struct file_context *context, const struct asked_for *asked, uint64_t out[2])
{
    const struct examiner *examiner = examiner_of(context);

    if (examiner)
        return examiner->tell(examiner->arg, context->process, asked, out, &context->why);
    int r = snapshot_find(context);
    return r == 0 ? 1 : r;
}

int snapshot_say(struct file_context *context, const char *file, const char *line, size_t size,
                 struct text *out)
{
    const struct examiner *examiner = examiner_of(context);
    const struct asked_line asked = {
        .file = file,
        .tid = context->tid,
        .depth = context->depth,
        .word = context->word,
        .line = line,
        .size = size,
    };

    if (examiner)
        return examiner->say(examiner->arg, context->process, &asked, context->interrupt,
                             &context->why, out);
    int r = snapshot_find(context);
    return r == 0 ? 1 : r;
}

int snapshot_ask_text(struct file_context *context, enum asked_what what, struct text *out)
{
    const struct asked_for asked = {.what = what, .tid = context->tid};
    size_t size = context->why.size;
    uint64_t none[2];

    int r = snapshot_ask(context, &asked, none);
    if (r == 0 && context->why.size > size) {
        text_add(out, context->why.data + size, context->why.size - size);
        text_truncate(&context->why, size);
    }
    return r;
}

static int read_thread(struct file_context *context, pid_t tid, uint64_t *thread, int64_t *interp)
{
    const struct snapshot_options options = {.tid = tid};
    _cleanup_(cleanup_snapshot) struct snapshot *snapshot = NULL;

    int r = snapshot_take(context->target, &options, &snapshot);
    if (r < 0)
        return snapshot_error(context, r);
    for (size_t i = 0; i < snapshot->nthreads; i++) {
        const struct thread *one = &snapshot->threads[i];
        if (one->tid != tid || !one->tstate)
            continue;
        *thread = one->thread_id;
        *interp = one->interp_id;
        return 0;
    }
    text_puts(&context->why, "this thread runs no Python");
    return -EINVAL;
}

int snapshot_find_thread(struct file_context *context, pid_t tid, uint64_t *thread, int64_t *interp)
{
    const struct asked_for asked = {.what = ASKED_THREAD, .tid = tid};
    uint64_t told[2];

    int r = snapshot_ask(context, &asked, told);
    if (r > 0)
        return read_thread(context, tid, thread, interp);
    if (r == 0) {
        *thread = told[0];
        *interp = (int64_t)told[1];
    }
    return r;
}
