#include "fs/tree/agent_session.h"

#include "agent/base/cleanup.h"
#include "fs/proc/procfs.h"
#include "fs/process/registry.h"
#include "fs/remote/frames/gil.h"
#include "fs/remote/moment/snapshot.h"
#include "fs/trace/callers.h"

#include <errno.h>
#include <string.h>

static int runs(void *arg, int tasks, pid_t tid) { return !callers_has(tid); }

/* Whether each thread of a process waits for an answer of this daemon; of its main thread that is
 * asked first, since it nearly always doesn't. */
static bool all_wait(pid_t pid) { return callers_has(pid) && proc_each_task(pid, runs, NULL) == 0; }

/* An errno as a shell is to print it; the words say the rest. */
static int errno_of(int error)
{
    switch (error) {
    case -ENOEXEC: /* its dynamic loader didn't take the agent */ return -EOPNOTSUPP;
    case -EPROTO: /* what answers is no agent */ return -EIO;
    }
    return error;
}

/* What it records is held from now on, as it comes. */
static int listen(struct file_context *context, int r, struct session *const *session)
{
    if (r == 0)
        registry_listen(context->registry, context->process, *session);
    return errno_of(r);
}

int agent_session_connect(struct file_context *context, struct session **out)
{
    return listen(context, agent_connect(context->target, &context->why, out), out);
}

int agent_session_attach(struct file_context *context, enum attach_way way, struct session **out)
{
    struct target *target = context->target;

    if (!all_wait(target->pid)) {
        int r = agent_attach(target, way, context->interrupt, &context->why, out);
        return listen(context, r, out);
    }
    int r = agent_session_connect(context, out);
    if (r != -ENOTCONN)
        return r;
    text_clear(&context->why);
    text_puts(&context->why, "every thread of the process waits for this very answer, so that none "
                             "can let an agent in: `import probing` in it, or write from elsewhere "
                             "first");
    return -EDEADLK;
}

/* Who has the GIL, which a command waited for in vain. */
static void say_holder(struct file_context *context, const char *lost)
{
    const struct snapshot_options options = {0};
    struct text *why = &context->why;
    struct snapshot *snapshot;

    text_printf(why, "the GIL was not to be had within 10 s, and %s", lost);
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

int agent_session_explain(struct file_context *context, int error, const struct proto_done *done,
                          const char *lost)
{
    struct text *why = &context->why;

    text_add_escaped(why, done->words, strnlen(done->words, sizeof done->words));
    switch (error) {
    case -ETIMEDOUT:
        if (!why->size)
            say_holder(context, lost);
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

uint64_t agent_session_gil_interval(struct file_context *context, int64_t interp)
{
    struct target *target = context->target;
    uint64_t address;

    _guard_mutex_(&target->lock);
    return gil_interval_find(&target->memory, &target->runtime, interp, &address) < 0 ? 0 : address;
}
