#include "fs/process/crashes.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/worker.h"
#include "fs/format/backtrace.h"
#include "fs/link/attach.h"
#include "fs/proc/may_hang.h"
#include "fs/process/examiner.h"
#include "fs/trace/claims.h"

#include <errno.h>

#define LOOK_END_NS 1000000000u

struct crashes {
    pthread_mutex_t lock;
    pthread_cond_t looked;
    unsigned n; /* looks under way */
    bool ending;
};

struct look {
    struct may_hang work;
    struct crashes *crashes;
    struct process *process; /* a reference */
};

int crashes_new(struct crashes **out)
{
    struct crashes *crashes = calloc(1, sizeof *crashes);
    if (!crashes)
        return -ENOMEM;
    pthread_mutex_init(&crashes->lock, NULL);
    pthread_cond_init(&crashes->looked, NULL);
    *out = crashes;
    return 0;
}

/* False: one hangs. */
static bool wait_for_looks(struct crashes *crashes)
{
    const struct timespec t = timespec_of(monotonic_ns() + LOOK_END_NS);

    _guard_mutex_(&crashes->lock);
    crashes->ending = true;
    while (crashes->n)
        if (pthread_cond_clockwait(&crashes->looked, &crashes->lock, CLOCK_MONOTONIC, &t) ==
            ETIMEDOUT)
            return !crashes->n;
    return true;
}

void crashes_free(struct crashes *crashes)
{
    if (!crashes || !wait_for_looks(crashes))
        return;
    pthread_cond_destroy(&crashes->looked);
    pthread_mutex_destroy(&crashes->lock);
    free(crashes);
}

/* False: there are too many. */
static bool enter(struct crashes *crashes)
{
    _guard_mutex_(&crashes->lock);
    if (crashes->ending || crashes->n == CRASHES_MAX)
        return false;
    crashes->n++;
    return true;
}

static void leave(struct crashes *crashes)
{
    _guard_mutex_(&crashes->lock);
    crashes->n--;
    pthread_cond_broadcast(&crashes->looked);
}

/* ---- a look ---- */

/* Its stacks, from who reads the process. */
static int read_stacks(struct process *process, struct text *why, struct text *out)
{
    const struct examiner *examiner = process->examiner;
    struct target *target;

    if (examiner && !claim_exists(process->pid)) /* only who traces it can stop its threads */
        return examiner->stacks(examiner->arg, process->pid, process->start_time, STACKS_BACKTRACE,
                                why, out);
    target = process_target(process);
    int r = target ? backtrace_text(target, process_recording(process), why, out) : -ESRCH;
    target_unref(target);
    return r;
}

static void take_down(struct process *process)
{
    struct text text = TEXT_INIT, why = TEXT_INIT;

    if (read_stacks(process, &why, &text) == 0 && text.size > CRASHES_TEXT_MAX) {
        text_truncate(&text, CRASHES_TEXT_MAX);
        text_puts(&text, "\n[cut: it is longer than a megabyte]\n");
    }
    if (text.size && !text.error)
        recording_keep_crash(process_recording(process), &text);
    text_deinit(&text);
    text_deinit(&why);
}

static void look_run(struct may_hang *work)
{
    struct process *process = ((struct look *)work)->process;

    process_watch(process); /* its rows are held from now on */
    take_down(process);
}

static void look_free(struct may_hang *work)
{
    process_unref(((struct look *)work)->process);
    free(work);
}

static void *look_main(void *arg)
{
    struct look *look = arg;
    struct crashes *crashes = look->crashes;

    may_hang_run(&look->work, NULL);
    struct target *target = process_held(look->process);
    struct session *session = target ? agent_session(target) : NULL;
    if (session)
        session_crash_seen(session); /* also where it was in vain */
    session_unref(session);
    target_unref(target);
    may_hang_unref(&look->work);
    leave(crashes);
    return NULL;
}

void crashes_look(struct crashes *crashes, struct process *process)
{
    struct look *look = calloc(1, sizeof *look);
    pthread_t thread;

    if (!look || !enter(crashes)) {
        process_unref(process);
        free(look);
        return;
    }
    look->work = (struct may_hang){.pid = process->pid, .run = look_run, .free = look_free};
    look->crashes = crashes;
    look->process = process;
    may_hang_init(&look->work);
    if (worker_start(look_main, look, "probefs-crash", &thread) == 0) {
        pthread_detach(thread);
        return;
    }
    leave(crashes);
    may_hang_unref(&look->work);
}
