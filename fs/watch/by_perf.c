#include "fs/watch/by_perf.h"

#include "agent/base/clock.h"
#include "fs/base/array.h"
#include "fs/inject/refusal.h"
#include "fs/proc/procfs.h"

#include <errno.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A thread that was listed after all others were armed has the event of the one that made
 * it, unless it was on its way already then. One for itself does no harm: a second SIGTRAP
 * of the same kind isn't kept. */
#define SETTLE_NS 1000000000ull
#define PASSES_MAX 8 /* looks for threads that came meanwhile, in a row */

struct event {
    pid_t tid;
    int fd; /* -1: it couldn't be armed, or was gone */
};

struct by_perf {
    pid_t pid;
    struct perf_event_attr attr;
    bool unblocked;   /* only threads that don't block SIGTRAP */
    uint64_t settled; /* CLOCK_MONOTONIC: from then on all new threads have inherited it */
    struct event *events;
    size_t n, alloc;
};

static int open_event(pid_t tid, struct perf_event_attr *attr)
{
    int fd = (int)syscall(SYS_perf_event_open, attr, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int explain(pid_t pid, pid_t tid, int error, struct text *why)
{
    switch (error) {
    case -EACCES:
    case -EPERM:
        text_printf(
            why,
            "perf_event_open(2) is refused: kernel.perf_event_paranoid is %d (2 would do, or "
            "CAP_PERFMON), or the daemon's container forbids it",
            proc_sys_number("/proc/sys/kernel/perf_event_paranoid"));
        return -EPERM;
    case -EINVAL:
    case -E2BIG:
        text_puts(why, "this kernel's perf events can't send SIGTRAP (that came with Linux 5.13)");
        return -EOPNOTSUPP;
    case -ENOENT:
    case -ENODEV:
    case -EOPNOTSUPP:
    case -ENOSYS:
        text_puts(why, "this kernel or machine has no debug registers for perf events");
        return -EOPNOTSUPP;
    case -ENOSPC:
        text_printf(why, "no debug register is free in thread %d: all %d are taken", (int)tid,
                    PROTO_WATCHES_MAX);
        if (proc_tracer(tid)) {
            text_puts(why, "; ");
            refusal_traced(pid, tid, why);
        } else {
            text_puts(why, " by watches of this file, or by somebody else's perf events");
        }
        return -EBUSY;
    case -EMFILE:
    case -ENFILE:
        text_puts(why, "too many files are open: perf events take one for each thread");
        return -EMFILE;
    }
    return error;
}

static bool is_known(const struct by_perf *perf, pid_t tid)
{
    for (size_t i = 0; i < perf->n; i++)
        if (perf->events[i].tid == tid)
            return true;
    return false;
}

/* Arms those that are not known yet; *more: there were any. must: else what
 * fails has inherited it. */
static int arm_listed(struct by_perf *perf, const pid_t *tids, size_t n, bool must, bool *more,
                      struct text *why)
{
    *more = false;
    for (size_t i = 0; i < n; i++) {
        if (is_known(perf, tids[i]) || (perf->unblocked && watch_blocks(tids[i])))
            continue;
        int r = ARRAY_GROW(perf->events, perf->alloc, perf->n + 1);
        if (r < 0)
            return r;
        int fd = open_event(tids[i], &perf->attr);
        if (fd >= 0 && !descriptor_spare(fd)) {
            close(fd);
            fd = -EMFILE;
        }
        if (fd < 0 && fd != -ESRCH && (must || fd != -ENOSPC))
            return explain(perf->pid, tids[i], fd, why);
        perf->events[perf->n++] = (struct event){tids[i], fd};
        *more = true;
    }
    return 0;
}

static int pass(struct by_perf *perf, bool must, bool *more, struct text *why)
{
    pid_t *tids;
    size_t n;

    int r = watch_threads(perf->pid, &tids, &n);
    if (r < 0)
        return r;
    r = arm_listed(perf, tids, n, must, more, why);
    free(tids);
    return r;
}

int by_perf_open(pid_t pid, pid_t tid, const struct perf_event_attr *attr, bool unblocked,
                 struct by_perf **out, struct text *why)
{
    struct by_perf *perf = calloc(1, sizeof *perf);
    bool more = true;
    int r = 0;

    if (!perf)
        return -ENOMEM;
    *perf = (struct by_perf){.pid = pid, .attr = *attr, .unblocked = unblocked};
    if (tid)
        r = arm_listed(perf, &tid, 1, true, &more, why);
    for (int i = 0; !tid && r == 0 && more && i < PASSES_MAX; i++)
        r = pass(perf, i == 0, &more, why);
    if (r < 0) {
        by_perf_free(perf);
        return r;
    }
    perf->settled = tid ? 0 : monotonic_ns() + SETTLE_NS;
    *out = perf;
    return 0;
}

int by_perf_arm(pid_t pid, const struct watch_place *place, struct by_perf **out, struct text *why)
{
    const struct perf_event_attr attr = {
        .type = PERF_TYPE_BREAKPOINT,
        .size = sizeof attr,
        .bp_type = HW_BREAKPOINT_W,
        .bp_addr = place->address,
        .bp_len = place->length,
        .sample_period = 1,
        .exclude_kernel = 1,
        .exclude_hv = 1,
        .inherit = 1,
        .inherit_thread = 1,
        .remove_on_exec = 1,
        .sigtrap = 1,
        .sig_data = place->data,
    };

    return by_perf_open(pid, 0, &attr, false, out, why);
}

void by_perf_follow(struct by_perf *perf)
{
    struct text why = TEXT_INIT;
    bool more;

    if (monotonic_ns() < perf->settled)
        (void)pass(perf, false, &more, &why);
    text_deinit(&why);
}

void by_perf_free(struct by_perf *perf)
{
    if (!perf)
        return;
    for (size_t i = 0; i < perf->n; i++)
        if (perf->events[i].fd >= 0)
            close(perf->events[i].fd);
    free(perf->events);
    free(perf);
}
