/* Which threads a watcher has: all of a process. */
#include "fs/watch/by_ptrace.h"

#include "agent/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/inject/refusal.h"
#include "fs/inject/seccomp.h"
#include "fs/proc/procfs.h"
#include "fs/trace/tracer.h"

#include <errno.h>
#include <sys/ptrace.h>

/* Not PTRACE_O_EXITKILL: when we are killed they go on. With TRACESYSGOOD a thread that stands at a
 * system call then gets no SIGTRAP for it. */
#define OPTIONS (PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_TRACESYSGOOD)
#define PASSES_MAX 64 /* looks for threads that were made meanwhile */
/* So long the first thread may take to stop once, and threads to be free, also where processors
 * are rare: nobody asks again. */
#define START_NS 2000000000ull

struct tracee *by_ptrace_find(struct by_ptrace *tracer, pid_t tid)
{
    for (size_t i = 0; i < tracer->n; i++)
        if (tracer->tracees[i].tid == tid)
            return &tracer->tracees[i];
    return NULL;
}

struct tracee *by_ptrace_add(struct by_ptrace *tracer, pid_t tid)
{
    if (ARRAY_GROW(tracer->tracees, tracer->alloc, tracer->n + 1) < 0)
        return NULL;
    struct tracee *tracee = &tracer->tracees[tracer->n++];
    *tracee = (struct tracee){.tid = tid};
    return tracee;
}

void by_ptrace_forget(struct by_ptrace *tracer, struct tracee *tracee)
{
    *tracee = tracer->tracees[--tracer->n];
}

/* Traces a thread that isn't known. Those that a known one makes are traced from their first moment
 * on. The watcher before this one may not have left yet. */
static int seize(struct by_ptrace *tracer, pid_t tid)
{
    int r = tracer_seize(tid, OPTIONS, START_NS);
    if (r == -ESRCH)
        return 0;
    if (r < 0 && (r != -EBUSY || proc_tracer(tid) != gettid()))
        return r;
    return by_ptrace_add(tracer, tid) ? 1 : -ENOMEM;
}

static int explain_seize(struct by_ptrace *tracer, pid_t tid, int error)
{
    if (tracer->why && error == -EBUSY)
        refusal_traced(tracer->claim.pid, tid, tracer->why);
    return tracer->why && error == -EPERM ? refusal_permission(tracer->why) : error;
}

int by_ptrace_seize(struct by_ptrace *tracer)
{
    bool more = true;

    for (int i = 0; more && i < PASSES_MAX; i++) {
        _cleanup_free_ pid_t *tids = NULL;
        size_t n;
        int r = watch_threads(tracer->claim.pid, &tids, &n);
        more = false;
        for (size_t k = 0; r >= 0 && k < n; k++) {
            if (by_ptrace_find(tracer, tids[k]))
                continue;
            r = seize(tracer, tids[k]);
            more = more || r > 0;
            if (r < 0)
                r = explain_seize(tracer, tids[k], r);
        }
        if (r < 0)
            return r;
    }
    return tracer->n ? 0 : -ESRCH;
}

/* Whether the filters of its first thread let its agent clear what we would
 * leave behind if we were killed. */
int by_ptrace_check_filters(struct by_ptrace *tracer)
{
    pid_t tid = tracer->tracees[0].tid;
    int status;

    if (!seccomp_has_filters(tid))
        return 0;
    ptrace(PTRACE_INTERRUPT, tid, NULL, NULL);
    int r = tracer_wait(tid, START_NS, &status);
    /* it is waited for again */
    return r < 0 ? r : seccomp_check(tid, SECCOMP_WATCH, 0, tracer->why);
}
