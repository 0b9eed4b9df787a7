/* For how long a thread has not run, as the kernel knows it. Nothing is asked of the thread.
 *
 * /proc/PID/task/TID/sched says when it ran last, on the clock of the processor that it ran on
 * (se.exec_start, kernel/sched/debug.c; update_curr() in fair.c sets it). These clocks leave out
 * what interrupts and hypervisors took, so each is compared with CLOCK_MONOTONIC_RAW by a thread of
 * ours that runs on that processor for a moment, where the scheduler might have put it anyway. It
 * is a thread that nobody waits for long: a processor that real-time threads keep for themselves
 * never lets it run. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct asleep {
    uint64_t ns; /* never more than it is */
    bool exact;  /* it isn't much more either */
};

/* until: CLOCK_MONOTONIC in ns, so long a processor's clock is waited for. -EAGAIN: the thread
 * runs, or nothing is known by then; -ENOENT: the kernel doesn't tell; -ESRCH. */
int asleep_for(pid_t pid, pid_t tid, uint64_t until, struct asleep *out);
