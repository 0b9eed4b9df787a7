/* eval, threads/<tid>/eval and threads/<tid>/frames/<depth>/eval: Python that runs in the
 * target, on its agent's thread.
 *
 * Complete statements run as they arrive; the agent says how much of the text that was. */
#include "fs/attached.h"
#include "fs/cleanup.h"
#include "fs/registry.h"
#include "fs/remote/gil.h"
#include "fs/remote/snapshot.h"
#include "fs/snapshot_file.h"

#include <errno.h>
#include <string.h>

#define GIL_DEADLINE_NS 10000000000u

/* The thread of the tree as the agent knows it. */
static int find_thread(struct file_context *context, struct proto_eval *request)
{
    const struct snapshot_options options = {.tid = context->tid};
    struct snapshot *snapshot;
    int r = -EINVAL;

    int taken = snapshot_take(context->target, &options, &snapshot);
    if (taken < 0)
        return snapshot_error(context, taken);
    for (size_t i = 0; i < snapshot->nthreads; i++) {
        const struct thread *thread = &snapshot->threads[i];
        if (thread->tid != context->tid || !thread->tstate)
            continue;
        request->thread = thread->thread_id;
        request->interp = thread->interp_id;
        r = 0;
        break;
    }
    snapshot_free(snapshot);
    if (r < 0)
        text_puts(&context->why, "this thread runs no Python: there is nothing to evaluate in");
    return r;
}

/* What the request says besides its text. */
static int fill_request(struct file_context *context, const struct input *input,
                        struct proto_eval *request)
{
    bool in_frame = strstr(context->file, "<depth>") != NULL;

    request->interp = atomic_load(&context->process->interp);
    request->depth = context->depth;
    request->flags = input->last ? EVAL_LAST : 0;
    if (context->tid) {
        request->flags |= in_frame ? EVAL_IN_FRAME : EVAL_ON_THREAD;
        int r = find_thread(context, request);
        if (r < 0)
            return r;
    }
    _guard_mutex_(&context->target->lock);
    if (gil_interval_find(&context->target->memory, &context->target->runtime, request->interp,
                          &request->gil_interval) < 0)
        request->gil_interval = 0;
    return 0;
}

/* Who has the GIL, which the code waited for in vain. */
static void say_holder(struct file_context *context)
{
    const struct snapshot_options options = {0};
    struct text *why = &context->why;
    struct snapshot *snapshot;

    text_puts(why, "the GIL was not to be had within 10 s, and the code will not run");
    if (snapshot_take(context->target, &options, &snapshot) < 0)
        return;
    for (size_t i = 0; i < snapshot->nthreads; i++) {
        const struct thread *t = &snapshot->threads[i];
        if (t->holds_gil)
            text_printf(why, "; thread %d (%s) holds it, see threads/%d/backtrace", (int)t->tid,
                        t->name, (int)t->tid);
    }
    snapshot_free(snapshot);
}

/* The words for an error, after the agent's own, and its errno as write(2) is to give it. */
static int explain(struct file_context *context, int error, const struct proto_done *done)
{
    struct text *why = &context->why;

    text_add_escaped(why, done->words, strnlen(done->words, sizeof done->words));
    switch (error) {
    case -ETIMEDOUT:
        if (!why->size)
            say_holder(context);
        break;
    case -EINTR:
    case -ECANCELED:
        if (!why->size)
            text_puts(why, "interrupted");
        return -EINTR;
    case -ESHUTDOWN:
        if (!why->size)
            text_puts(why, "the interpreter is ending");
        return -ESRCH;
    case -ESRCH:
        if (!why->size)
            text_puts(why, target_why_not(context->target) == -ESRCH
                               ? "the process has ended, or executes another program now"
                               : "the agent has ended meanwhile");
        break;
    case -EPROTO:
        if (!why->size)
            text_puts(why, "the agent said what makes no sense, and is not listened to any more");
        return -EIO;
    }
    return error;
}

int eval_run(struct file_context *context, const struct input *input, size_t *consumed,
             struct text *said)
{
    struct session_eval eval = {
        .text = input->text,
        .size = input->size,
        .gil_deadline_ns = GIL_DEADLINE_NS,
    };
    struct proto_done done = {0};
    struct session *session;

    int r = fill_request(context, input, &eval.request);
    if (r < 0)
        return r;
    r = attached_session(context, ATTACH_ANY, &session);
    if (r < 0)
        return r;
    r = session_eval(session, &eval, context->interrupt, said, &done);
    session_unref(session);
    if (done.flags & DONE_CUT) {
        if (said->size && said->data[said->size - 1] != '\n')
            text_putc(said, '\n');
        text_puts(said, "[cut: one reply holds at most 16 MiB]\n");
    }
    *consumed = done.consumed < input->size ? done.consumed : input->size;
    return r < 0 ? explain(context, r, &done) : 0;
}
