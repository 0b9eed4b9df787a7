#include "fs/tree/agent_session.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/link/lifetime.h"
#include "fs/proc/procfs.h"
#include "fs/process/control.h"
#include "fs/process/jobs.h"
#include "fs/process/registry.h"
#include "fs/remote/frames/gil.h"
#include "fs/recording/held_threads.h"
#include "fs/remote/moment/snapshot.h"
#include "fs/trace/callers.h"
#include "fs/tree/from_snapshot.h"

#include <errno.h>
#include <string.h>

#define GIL_NS 10000000000u
#define GIL_ASLEEP_NS 1000000000u
#define LOOKS_MAX 25
#define LOOK_NS 20000000u /* in between */

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

/* Whether it is still the program that the writer was asked about, and still theirs to control:
 * what they wrote may have waited. */
static int confirm(struct file_context *context)
{
    if (target_same_program(context->target))
        return control_may_all(context->access, context->principals, context->process,
                               &context->why);
    text_puts(&context->why, "the process has ended, or executes another program now");
    return -ESRCH;
}

/* Who puts agents in with the rights of a process doesn't find it any more once it has taken these
 * back, by PR_SET_DUMPABLE for one. */
static int explain_gone(struct file_context *context)
{
    if (!target_same_program(context->target))
        return -ESRCH;
    text_clear(&context->why);
    text_puts(&context->why, "the process lets nobody look at it any more, its own user neither");
    return -EPERM;
}

/* What it records is held from now on, as it comes. */
static int listen(struct file_context *context, int r, struct session **session)
{
    if (r < 0)
        return r == -ESRCH && context->process->examiner ? explain_gone(context) : errno_of(r);
    r = confirm(context);
    if (r < 0) {
        session_unref(*session);
        return r;
    }
    registry_listen(context->registry, context->process, *session);
    if (context->process->rank >= 0 && !process_is_told(context->process))
        (void)jobs_learn(context->registry); /* while those are there that tell: for exited/ */
    return 0;
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

/* Whether who reads the process was asked, and not this daemon. Where there is no answer it is as
 * if nothing were known. */
static bool is_told(struct file_context *context, const struct asked_for *asked, uint64_t told[2])
{
    size_t size = context->why.size;

    told[0] = told[1] = 0;
    int r = snapshot_ask(context, asked, told);
    text_truncate(&context->why, size);
    return r <= 0;
}

int agent_session_order(struct file_context *context, struct session **out)
{
    const struct asked_for asked = {.what = ASKED_FREE_THREADED};
    uint64_t told[2];

    if (is_told(context, &asked, told) ? told[0] : context->target->runtime.free_threaded) {
        text_puts(&context->why, "what an agent does in a free-threaded interpreter is `eval` in "
                                 "the program's globals, and no more");
        return -EOPNOTSUPP;
    }
    return agent_session_attach(context, ATTACH_ANY, out);
}

int agent_session_here(struct file_context *context, struct session *session)
{
    int r = context->lifetime ? lifetime_begin(context->lifetime, session) : -ECANCELED;

    if (r == -ECANCELED)
        text_puts(&context->why, "`here` means as long as this file is open, and it is closed "
                                 "already: keep it open, `exec 3>>FILE` in a shell");
    return r;
}

/* ---- waiting for the GIL ---- */

/* What else may have the GIL gives it up sooner or later, between two instructions if not before.
 */
static bool sleeps_outside_python(const struct thread *thread)
{
    return thread->holds_gil && thread->state == THREAD_IDLE && !thread->depth;
}

static uint64_t read_patience(struct target *target, int64_t interp)
{
    struct snapshot_options options = {0};
    struct snapshot *snapshot;
    uint64_t ns = GIL_NS;

    {
        _guard_mutex_(&target->lock);
        options.tid = agent_lend_sleeper(target, interp);
    }
    if (options.tid && snapshot_take(target, &options, &snapshot) == 0) {
        for (size_t i = 0; i < snapshot->nthreads; i++)
            if (sleeps_outside_python(&snapshot->threads[i]))
                ns = GIL_ASLEEP_NS;
        snapshot_free(snapshot);
    }
    return ns;
}

static uint64_t read_gil_interval(struct target *target, int64_t interp)
{
    uint64_t address;

    _guard_mutex_(&target->lock);
    return gil_interval_find(&target->memory, &target->runtime, interp, &address) < 0 ? 0 : address;
}

uint64_t agent_session_patience(struct file_context *context, int64_t interp)
{
    const struct asked_for asked = {.what = ASKED_GIL, .interp = interp};
    uint64_t told[2];

    if (!is_told(context, &asked, told))
        context->gil_ns = read_patience(context->target, interp);
    else
        context->gil_ns = told[1] == GIL_ASLEEP_NS ? GIL_ASLEEP_NS : GIL_NS;
    return context->gil_ns;
}

uint64_t agent_session_gil_interval(struct file_context *context, int64_t interp)
{
    const struct asked_for asked = {.what = ASKED_GIL, .interp = interp};
    uint64_t told[2];

    return is_told(context, &asked, told) ? told[0] : read_gil_interval(context->target, interp);
}

/* Adds who has the GIL, which a command waited for in vain. */
static void add_holders(const struct snapshot *snapshot, struct text *why)
{
    for (size_t i = 0; i < snapshot->nthreads; i++) {
        const struct thread *t = &snapshot->threads[i];
        if (sleeps_outside_python(t))
            text_printf(why,
                        "; thread %d (%s) holds it and sleeps outside Python, in %s: the program "
                        "has to give it up there (Py_BEGIN_ALLOW_THREADS; uWSGI: --enable-threads)",
                        (int)t->tid, t->name, *t->wait ? t->wait : "no system call");
        else if (t->holds_gil)
            text_printf(why, "; thread %d (%s) holds it, see threads/%d/backtrace", (int)t->tid,
                        t->name, (int)t->tid);
    }
}

/* The agent's thread that has the GIL, or had it, and is in code which must end first: an import,
 * for one; NULL: none, it is the GIL that they wait for. */
static const struct thread *find_stuck(const struct snapshot *snapshot,
                                       const struct held_list *agent)
{
    const struct thread *stuck = NULL;

    for (size_t i = 0; i < snapshot->nthreads; i++) {
        const struct thread *t = &snapshot->threads[i];
        if (!held_is_own(agent, t->tid))
            continue;
        if (t->waits_gil)
            return NULL;
        if (t->nframes && t->frames[0].kind == FRAME_PYTHON)
            stuck = t;
    }
    return stuck;
}

/* Whether a thread has the GIL outside Python and doesn't sleep. */
static bool any_wakes(const struct snapshot *snapshot)
{
    for (size_t i = 0; i < snapshot->nthreads; i++) {
        const struct thread *t = &snapshot->threads[i];
        if (t->holds_gil && !t->depth && t->state != THREAD_IDLE)
            return true;
    }
    return false;
}

/* Who was asked to lend it is awake for a moment, on its way back to its system call. */
static int take_asleep(struct target *target, struct snapshot **out)
{
    const struct snapshot_options options = {0};

    for (unsigned looks = 0;; looks++) {
        int r = snapshot_take(target, &options, out);
        if (r < 0 || looks == LOOKS_MAX || !any_wakes(*out))
            return r;
        snapshot_free(*out);
        nap_ns(LOOK_NS);
    }
}

void agent_session_say_waited(struct file_context *context, unsigned seconds, const char *lost)
{
    const struct asked_for asked = {.what = ASKED_WAIT, .seconds = seconds, .lost = lost};
    _cleanup_(held_list_deinit) struct held_list agent = {0};
    struct text *why = &context->why;
    struct snapshot *snapshot;
    uint64_t none[2];

    if (snapshot_ask(context, &asked, none) == 0 && why->size)
        return;
    text_clear(why);
    bool is_read = atomic_load(&context->target->found);
    if (is_read)
        (void)held_list_read(context->target, context->recording, &agent);
    int r = is_read ? take_asleep(context->target, &snapshot) : -ESRCH;
    const struct thread *stuck = r == 0 ? find_stuck(snapshot, &agent) : NULL;
    if (stuck)
        text_printf(why,
                    "the agent was not ready within %u s, and %s: its thread %d is in %s (%s:%d), "
                    "see threads/%d/backtrace",
                    seconds, lost, (int)stuck->tid, stuck->frames[0].func, stuck->frames[0].file,
                    stuck->frames[0].line, (int)stuck->tid);
    else
        text_printf(why, "%s was not to be had within %u s, and %s",
                    context->target->runtime.free_threaded ? "Python" : "the GIL", seconds, lost);
    if (r == 0 && !stuck)
        add_holders(snapshot, why);
    if (r == 0)
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
            agent_session_say_waited(context, (unsigned)(context->gil_ns / 1000000000), lost);
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
