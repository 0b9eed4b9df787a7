#include "fs/proc/may_hang.h"

#include "agent/arch/arch.h"
#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/worker.h"
#include "fs/proc/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define LOOK_NS (MAY_HANG_LOOK_MS * 1000000u)
#define SLEEPS_MAX 20 /* looks; then it is left behind ... */
#define SLEEPS_FEW 3  /* ... or now, where it hung before, or many of that user's do */
#define MANY 8        /* of one user's */
#define AGAIN_NS 10000000000u
#define AGAIN_DOUBLED 6 /* times at most */
#define IDLE_MAX 8      /* threads that wait for work */

struct thread {
    pthread_cond_t wake;
    struct may_hang *work; /* to do next */
    struct thread *next;   /* of those that are idle */
};

static struct {
    pthread_mutex_t lock;
    struct thread *idle;
    unsigned nidle;
    struct may_hang *listed; /* all that sleep or are left behind */
    unsigned left;           /* of these, those left behind */
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local pid_t current; /* whose work this thread does */

void may_hang_init(struct may_hang *work)
{
    work->refs = 1;
    work->unwanted.fd = -1;
    pthread_cond_init(&work->done, NULL);
}

static void release(struct may_hang *work)
{
    pthread_cond_destroy(&work->done);
    work->free(work);
}

void may_hang_unref(struct may_hang *work)
{
    if (!work)
        return;
    pthread_mutex_lock(&all.lock);
    bool last = --work->refs == 0;
    pthread_mutex_unlock(&all.lock);
    if (last)
        release(work);
}

bool may_hang_any(void)
{
    _guard_mutex_(&all.lock);
    return all.left > 0;
}

/* ---- what is listed; with the lock ---- */

static uid_t user_of(pid_t pid)
{
    char status[4096];
    const char *uid =
        proc_read(pid, "status", status, sizeof status) > 0 ? proc_status_field(status, "Uid") : 0;

    return uid ? (uid_t)strtoul(uid, NULL, 10) : (uid_t)-1; /* not root, for whom some is kept */
}

static uint64_t start_time_of(pid_t pid)
{
    struct proc_stat stat;

    return proc_stat_read(pid, &stat) == 0 ? stat.start_time : 0;
}

static void enlist(struct may_hang *work)
{
    work->uid = user_of(work->pid);
    work->start_time = start_time_of(work->pid);
    work->next = all.listed;
    all.listed = work;
    work->listed = true;
}

static void unlist(struct may_hang *work)
{
    struct may_hang **at = &all.listed;

    if (!work->listed)
        return;
    while (*at != work)
        at = &(*at)->next;
    *at = work->next;
    work->listed = false;
}

static unsigned count_of_user(uid_t uid)
{
    unsigned n = 0;

    for (const struct may_hang *work = all.listed; work; work = work->next)
        n += work->uid == uid;
    return n;
}

/* How often work on the process was left behind and hasn't come back, and when last, in ns. */
static unsigned count_left(pid_t pid, uint64_t *last)
{
    uint64_t start_time = 0;
    unsigned n = 0;

    *last = 0;
    for (const struct may_hang *work = all.listed; work; work = work->next) {
        if (work->pid != pid || !work->left_ns)
            continue;
        start_time = start_time ? start_time : start_time_of(pid);
        if (work->start_time != start_time)
            continue; /* a process before it */
        n++;
        *last = work->left_ns > *last ? work->left_ns : *last;
    }
    return n;
}

static bool has_left(pid_t pid)
{
    uint64_t last;

    return count_left(pid, &last) > 0;
}

static bool is_refused(pid_t pid)
{
    uint64_t last;
    unsigned n = count_left(pid, &last);

    if (n && monotonic_ns() < last + (AGAIN_NS << (n - 1 < AGAIN_DOUBLED ? n - 1 : AGAIN_DOUBLED)))
        return true;
    if (all.left < MAY_HANG_USER)
        return false;
    uid_t uid = user_of(pid);
    return count_of_user(uid) >= MAY_HANG_USER || (uid && all.left >= MAY_HANG_TOTAL);
}

/* ---- the threads ---- */

/* Ends work that came back, or was never gone. */
static void finish(struct may_hang *work)
{
    bool last, left;
    {
        _guard_mutex_(&all.lock);
        unlist(work);
        left = work->state == MAY_HANG_LEFT;
        if (!left)
            work->state = MAY_HANG_DONE;
        pthread_cond_broadcast(&work->done);
        last = --work->refs == 0;
    }
    if (last)
        release(work);
    _guard_mutex_(&all.lock);
    all.left -= left; /* what it works with isn't freed before */
}

static struct may_hang *next_work(struct thread *thread)
{
    _guard_mutex_(&all.lock);
    if (all.nidle == IDLE_MAX)
        return NULL;
    thread->work = NULL;
    thread->next = all.idle;
    all.idle = thread;
    all.nidle++;
    while (!thread->work)
        pthread_cond_wait(&thread->wake, &all.lock);
    return thread->work;
}

static void *thread_main(void *arg)
{
    struct thread *thread = arg;
    pid_t tid = (pid_t)syscall(SYS_gettid);

    for (struct may_hang *work = thread->work; work; work = next_work(thread)) {
        pthread_mutex_lock(&all.lock);
        work->tid = tid;
        pthread_mutex_unlock(&all.lock);
        current = work->pid;
        work->run(work);
        current = 0;
        finish(work);
    }
    pthread_cond_destroy(&thread->wake);
    free(thread);
    return NULL;
}

/* With the lock. */
static int give_to_thread(struct may_hang *work)
{
    struct thread *thread = all.idle;
    pthread_t id;

    if (thread) {
        all.idle = thread->next;
        all.nidle--;
        thread->work = work;
        pthread_cond_signal(&thread->wake);
        return 0;
    }
    thread = calloc(1, sizeof *thread);
    if (!thread)
        return -EAGAIN;
    thread->work = work;
    pthread_cond_init(&thread->wake, NULL);
    if (worker_start_deep(thread_main, thread, "probefs-look", &id) < 0) {
        pthread_cond_destroy(&thread->wake);
        free(thread);
        return -EAGAIN;
    }
    pthread_detach(id);
    return 0;
}

/* ---- who waits ---- */

int may_hang_start(struct may_hang *work)
{
    if (!work->pid || work->pid == current) {
        work->run(work);
        work->state = MAY_HANG_DONE;
        return 0;
    }
    _guard_mutex_(&all.lock);
    if (all.listed && is_refused(work->pid))
        return -ETIMEDOUT;
    work->refs++;
    int r = give_to_thread(work);
    if (r < 0)
        work->refs--;
    return r;
}

/* Whether a thread sleeps in a system call that should be over soon, as /proc/PID/syscall says it:
 * the call's number first. Those that wait for others have deadlines of their own; but a lock may
 * be held by a thread that hangs. Source: proc_pid_syscall(5). */
static bool is_asleep(const struct may_hang *work, const char *sleep)
{
    if (*sleep < '0' || *sleep > '9')
        return false; /* it runs */
    switch (atoi(sleep)) {
    case SYS_futex: return has_left(work->pid);
    case SYS_restart_syscall:
    case SYS_nanosleep:
    case SYS_clock_nanosleep:
    case SYS_poll:
    case SYS_ppoll:
    case SYS_wait4:
    case SYS_waitid:
    case SYS_recvmsg:
    case SYS_sendmsg: return false;
    default: return true;
    }
}

static bool is_same_sleep(struct may_hang *work)
{
    char path[64], sleep[sizeof work->sleep] = "";

    if (!work->tid)
        return false;
    snprintf(path, sizeof path, "/proc/%d/syscall", (int)work->tid);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, sleep, sizeof sleep - 1);
    bool same = n > 0 && is_asleep(work, sleep) && !strcmp(sleep, work->sleep);
    memcpy(work->sleep, sleep, sizeof sleep);
    return same;
}

static void look_at(struct may_hang *work, const struct interrupt *interrupt)
{
    if (interrupted(interrupt))
        atomic_store(&work->unwanted.raised, true);
    if (!is_same_sleep(work)) {
        work->sleeps = 0;
        unlist(work);
        return;
    }
    if (++work->sleeps < SLEEPS_FEW)
        return;
    if (!work->listed)
        enlist(work);
    if (work->sleeps < SLEEPS_MAX && !interrupted(interrupt) && !has_left(work->pid) &&
        count_of_user(work->uid) <= MANY)
        return;
    work->state = MAY_HANG_LEFT;
    work->left_ns = monotonic_ns();
    all.left++;
    atomic_store(&work->unwanted.raised, true);
}

static void wait_side_by_side(struct may_hang *const *works, size_t n,
                              const struct interrupt *interrupt)
{
    _guard_mutex_(&all.lock);
    for (size_t i = 0; i < n; i++) {
        while (works[i] && works[i]->state == MAY_HANG_RUNS) {
            const struct timespec t = timespec_of(monotonic_ns() + LOOK_NS);
            if (!pthread_cond_clockwait(&works[i]->done, &all.lock, CLOCK_MONOTONIC, &t))
                continue;
            for (size_t k = i; k < n; k++)
                if (works[k] && works[k]->state == MAY_HANG_RUNS)
                    look_at(works[k], interrupt);
        }
    }
}

int may_hang_wait(struct may_hang *work, const struct interrupt *interrupt)
{
    wait_side_by_side(&work, 1, interrupt);
    return work->state == MAY_HANG_DONE ? 0 : interrupted(interrupt) ? -EINTR : -ETIMEDOUT;
}

void may_hang_wait_all(struct may_hang *const *works, size_t n)
{
    wait_side_by_side(works, n, NULL);
}

int may_hang_run(struct may_hang *work, const struct interrupt *interrupt)
{
    int r = may_hang_start(work);

    return r < 0 ? r : may_hang_wait(work, interrupt);
}

int may_hang_begin(struct may_hang *work, pid_t tid)
{
    _guard_mutex_(&all.lock);
    if (all.listed && is_refused(work->pid))
        return -ETIMEDOUT;
    work->refs++;
    work->state = MAY_HANG_RUNS;
    work->sleeps = 0;
    work->tid = tid;
    return 0;
}

int may_hang_look(struct may_hang *work, const struct interrupt *interrupt)
{
    _guard_mutex_(&all.lock);
    look_at(work, interrupt);
    if (work->state == MAY_HANG_LEFT)
        return interrupted(interrupt) ? -EINTR : -ETIMEDOUT;
    return interrupted(interrupt) && !work->sleeps;
}

void may_hang_end(struct may_hang *work) { finish(work); }

void may_hang_left_by_others(pid_t pid) { current = pid; }

void may_hang_explain(int error, struct text *why)
{
    switch (error) {
    case -ETIMEDOUT:
        text_puts(why, "the process can't be read: some of its memory, or a file that it runs, is "
                       "on a file system that doesn't answer. It is tried again now and then");
        break;
    case -EAGAIN: text_puts(why, "no thread is to be had to read the process: try again"); break;
    case -EINTR: text_puts(why, "interrupted"); break;
    }
}
