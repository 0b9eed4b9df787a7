#include "fs/trace/tracer.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/proc/lwp.h"
#include "fs/proc/procfs.h"
#include "fs/proc/runs.h"
#include "fs/trace/callers.h"
#include "fs/trace/claims.h"
#include "fs/trace/restart.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The work copies through system calls and allocates elsewhere. */
#define STACK_SIZE (512u << 10)
/* A thread on another processor stops within 7 to 20 us: look often at first. */
#define SPIN_NS 40000ull
#define NAP_NS 20000
/* What reads while threads are stopped is usually done by then. */
#define SPIN_READ_NS 200000ull
#define TRACER_NICE (-15)
#define SEIZE_TRIES 20
#define STATUS_MAX 8192
/* How long those are waited for that get no processor to stop by. */
#define LATE_NS 2000000000ull

struct tracer {
    int (*work)(struct tracer *tracer, void *arg);
    void *arg;
    int result;
    struct {
        pid_t tid;
        int signal;   /* one that arrived with the stop and is passed on */
        bool before;  /* as restart_before() has it */
        bool stopped; /* else it was asked to, and may have done so since */
        bool ready;   /* it was ready to run when it was asked, having run so far: */
        struct runs runs;
        struct registers regs;
    } asked[TRACER_STOPPED_MAX];
    size_t n;
    /* those of a process that another tracer of this daemon claims: it stopped them for us */
    struct claim_hold holds[TRACER_STOPPED_MAX];
    size_t nholds;
    uint64_t since;   /* when the first had stopped, or may have */
    atomic_bool over; /* all were let go */

    bool apart; /* the work is done by another thread, which asks this one: */
    pthread_t thread;
    pthread_mutex_t *turn;
    sem_t asked_for, answered;
    bool resume; /* what is asked for; else to stop this one, in that time: */
    pid_t tid;
    uint64_t deadline_ns;
    int answer;
    bool late;       /* it took too long, and they were let go */
    uint64_t paused; /* ns, then */
};

/* ---- stopping ---- */

bool tracer_brief(pid_t tracer)
{
    char name[sizeof TRACER_NAME + 1]; /* and a newline */

    ssize_t n = proc_read(tracer, "comm", name, sizeof name);
    return n <= 0 || !strcmp(name, TRACER_NAME "\n");
}

int tracer_seize(pid_t tid, uintptr_t options, uint64_t deadline_ns)
{
    uint64_t start = monotonic_ns();
    char status[STATUS_MAX];

    /* a tracer may come and go between the two looks, but not each time */
    for (int free = 0; free < SEIZE_TRIES;) {
        if (ptrace(PTRACE_SEIZE, tid, NULL, (void *)options) == 0)
            return 0;
        if (errno == ESRCH || proc_read(tid, "status", status, sizeof status) <= 0)
            return -ESRCH;
        const char *state = proc_status_field(status, "State");
        if (state && (*state == 'Z' || *state == 'X'))
            return -ESRCH;
        const char *field = proc_status_field(status, "TracerPid");
        pid_t tracer = field ? (pid_t)strtol(field, NULL, 10) : 0;
        if (!tracer) {
            free++;
            continue;
        }
        if (tracer == gettid() || !tracer_brief(tracer) || monotonic_ns() - start > deadline_ns)
            return -EBUSY;
        nap_ns(NAP_NS);
    }
    return -EPERM;
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
            nap_ns(NAP_NS);
    }
}

int tracer_wait_ready(pid_t tid, uint64_t until_ns, int *status)
{
    for (;;) {
        bool ready = lwp_state(tid, tid) == 'R'; /* first: it may stop just after that */
        int r = tracer_wait(tid, ready ? TRACER_STOP_DEADLINE_NS : 0, status);
        if (r != -ETIMEDOUT || !ready || monotonic_ns() >= until_ns)
            return r;
    }
}

/* Has a thread stopped by the tracer that it has, if that is one of this daemon. */
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

/* Notes the stop of one that was asked to, or what came in its place. */
static void note_stop(struct tracer *tracer, size_t i, int status)
{
    /* either our PTRACE_EVENT_STOP (with SIGTRAP, or the job control signal in force), or the
     * delivery of a signal that came first and must not be lost */
    bool event = status >> 8 == PTRACE_EVENT_STOP;
    tracer->asked[i].stopped = true;
    tracer->asked[i].signal = event ? 0 : status;
    if (event)
        restart_interrupted(tracer->asked[i].tid, tracer->asked[i].before);
    registers_read(tracer->asked[i].tid, &tracer->asked[i].regs);
}

/* Waits for the stop of the thread asked last. */
static int settle(struct tracer *tracer, size_t i, uint64_t deadline_ns)
{
    int status = 0;

    int r = tracer_wait(tracer->asked[i].tid, deadline_ns, &status);
    if (r == 0)
        note_stop(tracer, i, status);
    return r;
}

/* Of one that has been interrupted before. Until it stops it has no processor, and is paused by
 * others. */
static int settle_again(struct tracer *tracer, size_t i, uint64_t deadline_ns)
{
    if (tracer->asked[i].stopped)
        return 0;
    int r = settle(tracer, i, deadline_ns);
    if (r == 0 && tracer->n == 1 && !tracer->nholds)
        tracer->since = monotonic_ns();
    return r;
}

static int stop(struct tracer *tracer, pid_t tid, uint64_t deadline_ns)
{
    for (size_t i = 0; i < tracer->n; i++)
        if (tracer->asked[i].tid == tid)
            return settle_again(tracer, i, deadline_ns);
    if (tracer->n + tracer->nholds == TRACER_STOPPED_MAX)
        return -ENFILE;
    if (callers_has(tid))
        return -EDEADLK;
    int r = tracer_seize(tid, 0, TRACER_STOP_DEADLINE_NS);
    if (r < 0)
        return r == -EBUSY ? hold(tracer, tid) : r;
    struct runs runs = {0};
    bool ready = deadline_ns == TRACER_INTERRUPT_NS && runs_read(tid, tid, &runs) == 0 &&
                 lwp_state(tid, tid) == 'R';
    bool before = restart_before(tid);
    if (ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) < 0)
        return -errno; /* died; or else this thread's end detaches it */
    tracer->asked[tracer->n].tid = tid;
    tracer->asked[tracer->n].before = before;
    tracer->asked[tracer->n].stopped = false;
    tracer->asked[tracer->n].ready = ready;
    tracer->asked[tracer->n].runs = runs;
    r = settle(tracer, tracer->n, deadline_ns);
    if (r < 0 && r != -ETIMEDOUT)
        return r;
    if (!tracer->n && !tracer->nholds)
        tracer->since = monotonic_ns();
    tracer->n++;
    return r;
}

static void detach(struct tracer *tracer, size_t i)
{
    ptrace(PTRACE_DETACH, tracer->asked[i].tid, NULL, (void *)(uintptr_t)tracer->asked[i].signal);
}

/* Whether one has executed nothing since it was asked to stop, nor slept: it only waits for a
 * processor. */
static bool stood_still(const struct tracer *tracer, size_t i)
{
    struct runs now;

    return tracer->asked[i].ready &&
           runs_read(tracer->asked[i].tid, tracer->asked[i].tid, &now) == 0 &&
           now.ns == tracer->asked[i].runs.ns && now.n == tracer->asked[i].runs.n;
}

/* Lets those go on that have not stopped when all others went on, since they get no processor. Left
 * alone now, one that was in a system call would take what it was interrupted by for a signal
 * (restart.h). */
static void let_late_go(struct tracer *tracer, const bool late[TRACER_STOPPED_MAX])
{
    const uint64_t until = monotonic_ns() + LATE_NS;
    int status = 0;

    for (size_t i = tracer->n; i-- > 0;)
        if (late[i] && tracer_wait_ready(tracer->asked[i].tid, until, &status) == 0) {
            note_stop(tracer, i, status);
            detach(tracer, i);
        }
}

/* Lets all go on. Returns for how long the first was stopped, in ns. Forgets none of them: their
 * registers may just be read. */
static uint64_t let_go(struct tracer *tracer)
{
    bool late[TRACER_STOPPED_MAX];

    for (size_t i = tracer->n; i-- > 0;) {
        int r = tracer->asked[i].stopped ? 0 : settle(tracer, i, 0);
        if (r == 0)
            detach(tracer, i);
        late[i] = r == -ETIMEDOUT && !stood_still(tracer, i);
    }
    for (size_t i = tracer->nholds; i-- > 0;)
        claim_release(&tracer->holds[i]);
    uint64_t ns = tracer->n || tracer->nholds ? monotonic_ns() - tracer->since : 0;
    let_late_go(tracer, late);
    return ns;
}

/* ---- threads ---- */

/* What is stopped waits for this thread: it goes before what else wants the processor, if that is
 * allowed. */
static void hurry(void) { setpriority(PRIO_PROCESS, (id_t)gettid(), TRACER_NICE); }

static void begin_thread(void)
{
    prctl(PR_SET_NAME, TRACER_NAME);
    prctl(PR_SET_TIMERSLACK, 1000); /* naps of 20 us, not of 70 */
    hurry();
}

static int start_thread(void *(*run)(void *), struct tracer *tracer, pthread_t *out)
{
    pthread_attr_t attr;

    int r = pthread_attr_init(&attr);
    if (r)
        return -r;
    pthread_attr_setstacksize(&attr, STACK_SIZE);
    r = pthread_create(out, &attr, run, tracer);
    pthread_attr_destroy(&attr);
    return -r;
}

/* ---- the work on the thread that traces ---- */

static void *tracer_main(void *arg)
{
    struct tracer *tracer = arg;

    begin_thread();
    tracer->result = tracer->work(tracer, tracer->arg);
    if (!atomic_load(&tracer->over))
        let_go(tracer);
    return NULL;
}

int tracer_run(int (*work)(struct tracer *tracer, void *arg), void *arg)
{
    struct tracer tracer = {.work = work, .arg = arg};
    pthread_t thread;

    int r = start_thread(tracer_main, &tracer, &thread);
    if (r < 0)
        return r;
    pthread_join(thread, NULL);
    return tracer.result;
}

/* ---- the work on another one ---- */

/* A sleep and its end would make the stop longer than reading does. */
static int take(sem_t *sem, const struct timespec *deadline)
{
    uint64_t start = monotonic_ns();
    int r = sem_trywait(sem);

    while (r < 0 && monotonic_ns() - start <= SPIN_READ_NS) {
        sched_yield();
        r = sem_trywait(sem);
    }
    while (r < 0 && (errno == EAGAIN || errno == EINTR))
        r = sem_clockwait(sem, CLOCK_MONOTONIC, deadline);
    return r;
}

/* The tracer's thread. With its end the kernel detaches also the threads that did not stop at
 * all. */
static void *serve(void *arg)
{
    struct tracer *tracer = arg;

    begin_thread();
    _guard_mutex_(tracer->turn);
    const struct timespec deadline = timespec_of(monotonic_ns() + TRACER_READ_DEADLINE_NS);
    while (!(tracer->late = take(&tracer->asked_for, &deadline) < 0) && !tracer->resume) {
        tracer->answer = stop(tracer, tracer->tid, tracer->deadline_ns);
        sem_post(&tracer->answered);
    }
    tracer->paused = let_go(tracer);
    atomic_store(&tracer->over, true);
    sem_post(&tracer->answered); /* whoever has just asked */
    return NULL;
}

/* Until the other thread has ended, once. -ETIMEDOUT: it had let all go before. */
static int resume(struct tracer *tracer)
{
    if (!tracer->resume) {
        tracer->resume = true;
        sem_post(&tracer->asked_for);
        pthread_join(tracer->thread, NULL);
    }
    return tracer->late ? -ETIMEDOUT : 0;
}

int tracer_read(pthread_mutex_t *turn, int (*work)(struct tracer *tracer, void *arg), void *arg)
{
    struct tracer tracer = {.apart = true, .turn = turn};
    int nice = getpriority(PRIO_PROCESS, (id_t)gettid());

    sem_init(&tracer.asked_for, 0, 0);
    sem_init(&tracer.answered, 0, 0);
    int r = start_thread(serve, &tracer, &tracer.thread);
    if (r < 0)
        return r;
    hurry();
    r = work(&tracer, arg);
    resume(&tracer);
    setpriority(PRIO_PROCESS, (id_t)gettid(), nice);
    return r;
}

/* ---- what the work calls ---- */

int tracer_resume(struct tracer *tracer, uint64_t *ns)
{
    if (tracer->apart) {
        int r = resume(tracer);
        *ns = tracer->paused;
        return r;
    }
    *ns = let_go(tracer);
    atomic_store(&tracer->over, true);
    return 0;
}

static int ask_to_stop(struct tracer *tracer, pid_t tid, uint64_t deadline_ns)
{
    if (!tracer->apart)
        return stop(tracer, tid, deadline_ns);
    if (atomic_load(&tracer->over))
        return -ETIMEDOUT;
    tracer->tid = tid;
    tracer->deadline_ns = deadline_ns;
    sem_post(&tracer->asked_for);
    while (sem_wait(&tracer->answered) < 0)
        ;
    return atomic_load(&tracer->over) ? -ETIMEDOUT : tracer->answer;
}

int tracer_stop(struct tracer *tracer, pid_t tid)
{
    return ask_to_stop(tracer, tid, TRACER_STOP_DEADLINE_NS);
}

int tracer_interrupt(struct tracer *tracer, pid_t tid)
{
    return ask_to_stop(tracer, tid, TRACER_INTERRUPT_NS);
}

int tracer_registers(struct tracer *tracer, pid_t tid, struct registers *out)
{
    for (size_t i = 0; i < tracer->nholds; i++) {
        if (tracer->holds[i].tid == tid) {
            *out = tracer->holds[i].regs;
            return 0;
        }
    }
    for (size_t i = 0; i < tracer->n; i++) {
        if (tracer->asked[i].tid == tid && tracer->asked[i].stopped) {
            *out = tracer->asked[i].regs;
            return 0;
        }
    }
    return -ESRCH;
}
