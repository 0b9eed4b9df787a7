#include "fs/trace/pacing.h"

#include "agent/base/clock.h"
#include "fs/proc/lwp.h"

#define NAP_NS 50000
#define PROGRESS_NS 20000 /* processor time in which a thread gets well away from where it was */

/* Processor time of all threads of a process; 0 if it is gone. */
static uint64_t cpu_ns(pid_t pid)
{
    clockid_t clock;
    struct timespec t;

    if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &t) < 0)
        return 0;
    return timespec_ns(&t);
}

bool pacing_wait(const struct pacing *pacing, pid_t pid)
{
    uint64_t start = monotonic_ns(), now;
    bool waited = false;

    while (pacing->due_cpu_ns && (now = cpu_ns(pid)) && now < pacing->due_cpu_ns &&
           monotonic_ns() - start < PACING_DEADLINE_NS) {
        nap_ns(NAP_NS);
        waited = true;
    }
    return waited;
}

void pacing_paused(struct pacing *pacing, pid_t pid, uint64_t pause_ns)
{
    pacing->due_cpu_ns = cpu_ns(pid) + PACING_RUN_PER_PAUSE * pause_ns;
}

void pacing_let_run(pid_t pid, pid_t tid)
{
    uint64_t start = monotonic_ns(), due = cpu_ns(pid) + PROGRESS_NS;

    while (cpu_ns(pid) < due && lwp_state(pid, tid) == 'R' &&
           monotonic_ns() - start < PACING_PROGRESS_DEADLINE_NS)
        nap_ns(NAP_NS);
}
