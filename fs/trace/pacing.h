/* How often a process may be paused.
 *
 * Somebody may read the same files in an endless loop. Each pause is short, but on a loaded machine
 * a process that is paused again before it got to run would stand still. So after a pause it must
 * have had several times as much processor time, or a deadline must have passed: then it is others
 * that keep it from running. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PACING_RUN_PER_PAUSE 4         /* processor time between pauses, in pauses */
#define PACING_DEADLINE_NS 20000000ull /* longest wait for it */
#define PACING_PROGRESS_DEADLINE_NS 1000000000ull

struct pacing {
    uint64_t due_cpu_ns; /* processor time of the process at which it may be paused again */
};

/* Waits until the process may be paused, never longer than the deadline. Whether it had to. */
bool pacing_wait(const struct pacing *pacing, pid_t pid);
/* Notes a pause that has just ended. */
void pacing_paused(struct pacing *pacing, pid_t pid, uint64_t pause_ns);
/* Waits until the process has run on a little, as long as this thread of it is ready to, a second
 * at most: for who stopped the thread in the middle of something, and would find it there again. */
void pacing_let_run(pid_t pid, pid_t tid);
