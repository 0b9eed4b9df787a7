#include "fs/trace/tracer.h"

#include "agent/base/clock.h"
#include "fs/trace/callers.h"
#include "fs/trace/claims.h"
#include "fs/trace/restart.h"

#include <elf.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The work copies through system calls and allocates elsewhere. */
#define STACK_SIZE (512u << 10)
/* A thread on another processor stops within 7 to 20 us: look often at first. */
#define SPIN_NS 40000ull
#define NAP_NS 20000
#define TRACER_NICE (-15)

struct tracer {
    int (*work)(struct tracer *tracer, void *arg);
    void *arg;
    int result;
    struct {
        pid_t tid;
        int signal;   /* one that arrived with the stop and is passed on */
        bool stopped; /* else it was asked to, and may have done so since */
    } asked[TRACER_STOPPED_MAX];
    size_t n;
    /* those of a process that another tracer of this daemon claims: it stopped them for us */
    struct claim_hold holds[TRACER_STOPPED_MAX];
    size_t nholds;
    uint64_t since; /* when the first had stopped, or may have */
};

static void *tracer_main(void *arg)
{
    struct tracer *tracer = arg;

    prctl(PR_SET_NAME, TRACER_NAME);
    prctl(PR_SET_TIMERSLACK, 1000); /* naps of 20 us, not of 70 */
    /* what is stopped waits for this thread: go before what else wants the processor, if allowed */
    setpriority(PRIO_PROCESS, (id_t)gettid(), TRACER_NICE);
    tracer->result = tracer->work(tracer, tracer->arg);
    tracer_resume(tracer);
    return NULL;
}

int tracer_run(int (*work)(struct tracer *tracer, void *arg), void *arg)
{
    struct tracer tracer = {.work = work, .arg = arg};
    pthread_attr_t attr;
    pthread_t thread;

    int r = pthread_attr_init(&attr);
    if (r)
        return -r;
    pthread_attr_setstacksize(&attr, STACK_SIZE);
    r = pthread_create(&thread, &attr, tracer_main, &tracer);
    pthread_attr_destroy(&attr);
    if (r)
        return -r;
    pthread_join(thread, NULL);
    return tracer.result;
}

/* The stop is left unconsumed (WNOWAIT): if it is the delivery of a signal and this daemon is
 * killed now, the kernel delivers it. */
int tracer_wait(pid_t tid, uint64_t deadline_ns, int *status)
{
    uint64_t start = monotonic_ns();

    for (;;) {
        siginfo_t info = {.si_pid = 0};
        if (waitid(P_PID, (id_t)tid, &info, WEXITED | WSTOPPED | WNOWAIT | WNOHANG | __WALL) < 0)
            return errno == ECHILD ? -ESRCH : -errno;
        if (info.si_pid && (info.si_code == CLD_TRAPPED || info.si_code == CLD_STOPPED)) {
            *status = info.si_status;
            return 0;
        }
        if (info.si_pid) { /* it ended; its process can't, as long as nobody takes notice of that */
            waitid(P_PID, (id_t)tid, &info, WEXITED | WNOHANG | __WALL);
            return -ESRCH;
        }
        uint64_t waited = monotonic_ns() - start;
        if (waited > deadline_ns)
            return -ETIMEDOUT;
        if (waited < SPIN_NS)
            sched_yield();
        else if (callers_has(tid))
            return -EDEADLK;
        else
            nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
}

/* By the tracer that it has, if that is one of this daemon. */
static int hold(struct tracer *tracer, pid_t tid)
{
    int r = claim_hold(tid, TRACER_STOP_DEADLINE_NS, &tracer->holds[tracer->nholds]);
    if (r < 0)
        return r == -ENOENT || r == -ETIMEDOUT ? -EBUSY : r;
    if (!tracer->n && !tracer->nholds)
        tracer->since = monotonic_ns();
    tracer->nholds++;
    return 0;
}

/* Waits for the stop of the thread asked last. */
static int settle(struct tracer *tracer, size_t i, uint64_t deadline_ns)
{
    int status = 0;

    int r = tracer_wait(tracer->asked[i].tid, deadline_ns, &status);
    if (r < 0)
        return r;
    /* either our PTRACE_EVENT_STOP (with SIGTRAP, or the job control signal in force), or the
     * delivery of a signal that came first and must not be lost */
    bool event = status >> 8 == PTRACE_EVENT_STOP;
    tracer->asked[i].stopped = true;
    tracer->asked[i].signal = event ? 0 : status;
    if (event)
        restart_interrupted(tracer->asked[i].tid);
    return 0;
}

int tracer_stop(struct tracer *tracer, pid_t tid)
{
    if (tracer->n + tracer->nholds == TRACER_STOPPED_MAX)
        return -ENFILE;
    if (callers_has(tid))
        return -EDEADLK;
    /* the kernel says EPERM both where another tracer is and where ptrace isn't allowed; who may
     * not trace may not read memory either, and would not have come this far */
    if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) < 0)
        return errno == EPERM ? hold(tracer, tid) : -errno;
    if (ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) < 0)
        return -errno; /* died; or else this thread's end detaches it */
    tracer->asked[tracer->n].tid = tid;
    tracer->asked[tracer->n].stopped = false;
    int r = settle(tracer, tracer->n, TRACER_STOP_DEADLINE_NS);
    if (r < 0 && r != -ETIMEDOUT)
        return r;
    if (!tracer->n && !tracer->nholds)
        tracer->since = monotonic_ns();
    tracer->n++;
    return r;
}

uint64_t tracer_resume(struct tracer *tracer)
{
    if (!tracer->n && !tracer->nholds)
        return 0;
    for (; tracer->n; tracer->n--) {
        size_t i = tracer->n - 1;
        if (tracer->asked[i].stopped || settle(tracer, i, 0) == 0)
            ptrace(PTRACE_DETACH, tracer->asked[i].tid, NULL,
                   (void *)(uintptr_t)tracer->asked[i].signal);
    }
    for (; tracer->nholds; tracer->nholds--)
        claim_release(&tracer->holds[tracer->nholds - 1]);
    return monotonic_ns() - tracer->since;
}

int tracer_registers(struct tracer *tracer, pid_t tid, struct user_regs_struct *out)
{
    struct iovec io = {out, sizeof *out};

    for (size_t i = 0; i < tracer->nholds; i++) {
        if (tracer->holds[i].tid == tid) {
            *out = tracer->holds[i].regs;
            return 0;
        }
    }
    return ptrace(PTRACE_GETREGSET, tid, (void *)(uintptr_t)NT_PRSTATUS, &io) < 0 ? -errno : 0;
}
