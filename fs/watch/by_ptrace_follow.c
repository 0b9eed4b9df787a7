/* A watcher's thread: lets the target's threads run, and looks at each stop of theirs. As a tracer
 * it must be invisible: signals go on as they came, job control stops what it stops, and a system
 * call that a stop of ours cut short is begun anew (trace/restart.h). */
#include "fs/watch/by_ptrace.h"

#include "agent/base/cleanup.h"
#include "fs/proc/procfs.h"
#include "fs/trace/callers.h"
#include "fs/trace/restart.h"

#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define SYSCALL_STOP (SIGTRAP | 0x80)
#define TRACER_NICE (-15)

/* ---- one of them ---- */

/* With the lock. */
static bool is_wanted(const struct by_ptrace *tracer, pid_t tid)
{
    for (struct claim_hold *hold = tracer->holds; hold; hold = hold->next)
        if (hold->tid == tid)
            return true;
    return false;
}

static bool is_held(struct by_ptrace *tracer, pid_t tid)
{
    _guard_mutex_(&tracer->lock);
    return is_wanted(tracer, tid);
}

static void go_on(struct by_ptrace *tracer, struct tracee *tracee)
{
    int request = tracee->in_group_stop ? PTRACE_LISTEN
                  : tracee->calls       ? PTRACE_SYSCALL
                                        : PTRACE_CONT;

    tracee->stopped = false;
    ptrace(request, tracee->tid, NULL, (void *)(uintptr_t)tracee->signal);
    tracee->signal = 0;
}

/* Not while a hit of its is on the way to it: nobody would say what it is. It
 * stops for that next. */
static void let_go(struct by_ptrace *tracer, struct tracee *tracee)
{
    by_ptrace_clear(tracee);
    if (by_ptrace_hit_waits(tracee)) {
        go_on(tracer, tracee);
        tracee->interrupted = true; /* a stop by ours would come before it */
        return;
    }
    ptrace(PTRACE_DETACH, tracee->tid, NULL, (void *)(uintptr_t)tracee->signal);
    by_ptrace_forget(tracer, tracee);
}

static void set_free(struct by_ptrace *tracer, struct tracee *tracee)
{
    if (tracer->leaving)
        let_go(tracer, tracee);
    else
        go_on(tracer, tracee);
}

static void give_up_watching(struct by_ptrace *tracer, int error, bool unhandled)
{
    _guard_mutex_(&tracer->lock);
    tracer->error = tracer->error ? tracer->error : error;
    tracer->ending = tracer->ending || error;
    tracer->unhandled = tracer->unhandled || unhandled;
    memset(tracer->places, 0, sizeof tracer->places);
    tracer->version++;
    tracer->stirred = true;
}

/* What it has stopped for, and with which signal it is to go on. */
static void note_stop(struct by_ptrace *tracer, struct tracee *tracee, int signal, int event)
{
    bool unhandled = false;

    tracee->stopped = true;
    tracee->interrupted = tracee->in_group_stop = false;
    tracee->signal = 0;
    switch (event) {
    case PTRACE_EVENT_STOP:
        tracee->in_group_stop = signal != SIGTRAP;
        if (!tracee->in_group_stop)
            restart_interrupted(tracee->tid, true);
        break;
    case 0:
        if (signal == SIGTRAP)
            tracee->signal = by_ptrace_hit(tracer, tracee, &unhandled);
        else if (signal != SYSCALL_STOP)
            tracee->signal = signal;
    }
    if (unhandled)
        give_up_watching(tracer, 0, true);
}

/* The program is another one now: its registers are clear, and the other threads have ended. */
static void executed(struct by_ptrace *tracer, pid_t tid)
{
    ptrace(PTRACE_DETACH, tid, NULL, NULL);
    tracer->n = 0;
    give_up_watching(tracer, -ESRCH, false);
}

/* A new thread is traced, and so is a process that shares memory with the one
 * that made it: that isn't ours. */
static struct tracee *meet(struct by_ptrace *tracer, pid_t tid)
{
    bool foreign = syscall(SYS_tgkill, tracer->claim.pid, tid, 0) < 0 && errno == ESRCH;
    struct tracee *tracee = foreign ? NULL : by_ptrace_add(tracer, tid);

    if (!tracee)
        ptrace(PTRACE_DETACH, tid, NULL, NULL);
    return tracee;
}

static void handle(struct by_ptrace *tracer, pid_t tid, int status)
{
    struct tracee *tracee = by_ptrace_find(tracer, tid);

    if (!WIFSTOPPED(status)) {
        if (tracee)
            by_ptrace_forget(tracer, tracee);
        return;
    }
    if (status >> 16 == PTRACE_EVENT_EXEC) {
        executed(tracer, tid);
        return;
    }
    if (!tracee && !(tracee = meet(tracer, tid)))
        return;
    note_stop(tracer, tracee, WSTOPSIG(status), status >> 16);
    if (!tracer->leaving)
        by_ptrace_apply(tracer, tracee);
    if (!is_held(tracer, tid))
        set_free(tracer, tracee);
}

/* ---- what others want ---- */

static void interrupt(struct tracee *tracee)
{
    if (tracee->interrupted || callers_has(tracee->tid))
        return;
    tracee->interrupted = ptrace(PTRACE_INTERRUPT, tracee->tid, NULL, NULL) == 0;
}

/* With the lock. */
static void serve_holds(struct by_ptrace *tracer)
{
    for (struct claim_hold *hold = tracer->holds; hold; hold = hold->next) {
        struct tracee *tracee = by_ptrace_find(tracer, hold->tid);
        if (hold->stopped || !tracee)
            continue;
        if (!tracee->stopped)
            interrupt(tracee);
        else
            hold->stopped = registers_read(hold->tid, &hold->regs) == 0;
    }
}

static bool has_unblocked(pid_t tid)
{
    char status[8192];

    if (proc_read(tid, "status", status, sizeof status) <= 0)
        return false;
    const char *field = proc_status_field(status, "SigBlk");
    return field && !(strtoull(field, NULL, 16) >> (SIGTRAP - 1) & 1);
}

/* Sees to it that a tracee gets the registers that are wanted, or is let go. With the lock. */
static void serve(struct by_ptrace *tracer, struct tracee *tracee)
{
    if (tracee->blocks && tracer->stirred && has_unblocked(tracee->tid)) {
        tracee->blocks = false;
        tracee->version = 0;
    }
    bool outdated = tracee->version != tracer->own_version && !tracee->calls;
    if (tracee->stopped) {
        if (!tracer->leaving)
            by_ptrace_apply(tracer, tracee);
        if (!is_wanted(tracer, tracee->tid))
            set_free(tracer, tracee);
    } else if (outdated || tracer->leaving) {
        interrupt(tracee);
        tracer->late += !callers_has(tracee->tid);
    }
}

/* With the lock. */
static void serve_all(struct by_ptrace *tracer)
{
    tracer->late = 0;
    for (size_t i = tracer->n; i-- > 0;)
        serve(tracer, &tracer->tracees[i]);
    serve_holds(tracer);
}

/* With the lock. */
static void take_places(struct by_ptrace *tracer)
{
    tracer->own_version = tracer->version;
    for (unsigned i = 0; i < PROTO_WATCHES_MAX; i++) {
        if (!memcmp(&tracer->own[i], &tracer->places[i], sizeof *tracer->own))
            continue;
        tracer->own[i] = tracer->places[i];
        tracer->since[i] = tracer->own_version;
    }
}

/* Looks at what is wanted. Returns whether there is a tracee to wait for. */
static bool attend(struct by_ptrace *tracer)
{
    _guard_mutex_(&tracer->lock);
    if (tracer->own_version != tracer->version)
        take_places(tracer);
    tracer->leaving = tracer->ending || tracer->paused;
    if (tracer->stirred || tracer->late || tracer->holds || tracer->leaving)
        serve_all(tracer);
    tracer->stirred = false;
    if (!tracer->n && !tracer->leaving && !tracer->error)
        tracer->error = -ESRCH;
    tracer->alone = !tracer->n;
    tracer->rounds++;
    pthread_cond_broadcast(&tracer->changed);
    return tracer->n > 0;
}

/* Waits, as it traces nothing. False: and never will again. */
static bool rest(struct by_ptrace *tracer)
{
    {
        _guard_mutex_(&tracer->lock);
        tracer->idle = true;
        while (tracer->paused && !tracer->ending && !tracer->error)
            pthread_cond_wait(&tracer->wanted_change, &tracer->lock);
        if (tracer->ending || tracer->error) {
            tracer->gone = true;
            pthread_cond_broadcast(&tracer->changed);
            return false;
        }
        tracer->idle = false;
    }
    int r = by_ptrace_seize(tracer);
    if (r < 0)
        give_up_watching(tracer, r, false);
    return true;
}

static void begin(struct by_ptrace *tracer)
{
    sigset_t wake;

    prctl(PR_SET_NAME, "probefs-watcher");
    setpriority(PRIO_PROCESS, (id_t)gettid(), TRACER_NICE);
    sigemptyset(&wake);
    sigaddset(&wake, by_ptrace_wake_signal());
    pthread_sigmask(SIG_UNBLOCK, &wake, NULL);
    int r = by_ptrace_seize(tracer);
    if (r == 0)
        r = by_ptrace_check_filters(tracer);

    _guard_mutex_(&tracer->lock);
    tracer->why = NULL;
    tracer->error = r;
    tracer->started = true;
    tracer->ending = tracer->ending || r < 0;
    pthread_cond_broadcast(&tracer->changed);
}

void *by_ptrace_main(void *arg)
{
    struct by_ptrace *tracer = arg;
    int status;

    begin(tracer);
    for (;;) {
        if (!attend(tracer)) {
            if (!rest(tracer))
                break;
            continue;
        }
        pid_t tid = waitpid(-1, &status, __WALL | __WNOTHREAD);
        if (tid > 0)
            handle(tracer, tid, status);
        else if (errno == ECHILD)
            tracer->n = 0;
    }
    claim_unref(&tracer->claim);
    return NULL;
}
