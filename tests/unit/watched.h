/* A process to be watched: what a program with an agent is, as far as debug registers
 * go. It handles SIGTRAP as the agent does, and writes to its variables when it is told
 * to, by threads of every kind. */
#pragma once

#include "agent/base/clock.h"
#include "agent/watch/stale_registers.h"
#include "agent/wire/proto.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define WATCHED_SLOTS 4
#define TRAP_PERF_CODE 6
#define TRAP_HWBKPT_CODE 4

/* Shared with the test. */
struct watched_seen {
    volatile long hits[WATCHED_SLOTS]; /* SIGTRAPs that told of a slot */
    volatile long orphans;             /* that a dead tracer has left */
    volatile long strange;             /* of neither kind */
    volatile long written;             /* by the writer that never stops */
    volatile long made;                /* threads, by the one that makes one after the other */
    volatile long usr1, eintr, sleeps;
    volatile pid_t tid;     /* of the thread that writes */
    volatile uint64_t data; /* what the last one said */
};

struct watched {
    pid_t pid;
    int order, answer; /* pipes */
    struct watched_seen *seen;
    volatile uint64_t *places; /* its memory: one cache line each, at the same address here */
};

static struct watched watched_self; /* in the target */

static inline void watched_trap(int signal, siginfo_t *info, void *context)
{
    struct watched_seen *seen = watched_self.seen;
    uint64_t data = *(uint64_t *)((char *)info + 24);

    if (info->si_code == TRAP_PERF_CODE && (data & 255) < WATCHED_SLOTS) {
        seen->data = data;
        __atomic_fetch_add(&seen->hits[data & 255], 1, __ATOMIC_RELAXED);
    } else if (info->si_code == TRAP_HWBKPT_CODE) {
        __atomic_fetch_add(&seen->orphans, 1, __ATOMIC_RELAXED);
    } else if (info->si_code != TRAP_BRKPT) { /* that one KVM couldn't name (agent/arch/x86_64.h) */
        __atomic_fetch_add(&seen->strange, 1, __ATOMIC_RELAXED);
    }
}

static inline void watched_usr1(int signal) { watched_self.seen->usr1++; }

struct watched_write {
    unsigned slot;
    long n;
};

static inline void *watched_store(void *arg)
{
    const struct watched_write *write = arg;

    watched_self.seen->tid = gettid();
    for (long i = 0; i < write->n; i++)
        watched_self.places[8 * write->slot] = (uint64_t)i;
    return NULL;
}

static inline void *watched_store_blocked(void *arg)
{
    sigset_t all;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    return watched_store(arg);
}

static inline void watched_thread(void *(*run)(void *), void *arg, bool join)
{
    pthread_t thread;

    CHECK(pthread_create(&thread, NULL, run, arg) == 0);
    if (join)
        pthread_join(thread, NULL);
}

static inline void *watched_store_for_ever(void *arg)
{
    for (;; watched_self.seen->written++)
        watched_store(arg);
    return NULL;
}

/* The same by one new thread after the other. */
static inline void *watched_store_by_new(void *arg)
{
    for (;; watched_self.seen->made++)
        watched_thread(watched_store, arg, true);
    return NULL;
}

/* What a stop must not cut short. */
static inline void *watched_sleep(void *arg)
{
    int fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event;

    for (;;) {
        watched_self.seen->sleeps++;
        if (epoll_wait(fd, &event, 1, 60000) < 0)
            watched_self.seen->eintr++;
    }
    return NULL;
}

/* A thread that nobody can stop before its child is gone. */
static inline void *watched_vfork(void *arg)
{
    watched_self.seen->sleeps++;
    if (vfork() == 0) {
        struct timespec t = {.tv_nsec = 600000000};
        syscall(SYS_nanosleep, &t, NULL);
        _exit(0);
    }
    return NULL;
}

static pthread_mutex_t watched_worker_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t watched_worker_cond = PTHREAD_COND_INITIALIZER;
static struct watched_write *watched_work;

/* A thread that is there from the beginning. */
static inline void *watched_worker(void *arg)
{
    pthread_mutex_lock(&watched_worker_lock);
    for (;;) {
        while (!watched_work)
            pthread_cond_wait(&watched_worker_cond, &watched_worker_lock);
        watched_store(watched_work);
        watched_work = NULL;
        pthread_cond_broadcast(&watched_worker_cond);
    }
    return NULL;
}

static inline void watched_by_worker(struct watched_write *write)
{
    pthread_mutex_lock(&watched_worker_lock);
    watched_work = write;
    pthread_cond_broadcast(&watched_worker_cond);
    while (watched_work)
        pthread_cond_wait(&watched_worker_cond, &watched_worker_lock);
    pthread_mutex_unlock(&watched_worker_lock);
}

/* In the target: does what it is told, for ever. */
static inline void watched_serve(int orders, int answers)
{
    static struct watched_write write_, hot = {0, 1000}, few = {0, 10};
    struct {
        char what;
        struct watched_write write;
    } order;
    int status = 0;

    while (read(orders, &order, sizeof order) == sizeof order) {
        write_ = order.write;
        switch (order.what) {
        case 'm': watched_store(&write_); break;
        case 'w': watched_by_worker(&write_); break;
        case 't': watched_thread(watched_store, &write_, true); break;
        case 'b': watched_thread(watched_store_blocked, &write_, true); break;
        case 'h':
            hot.slot = write_.slot;
            watched_thread(watched_store_for_ever, &hot, false);
            break;
        case 'n':
            few.slot = write_.slot;
            watched_thread(watched_store_by_new, &few, false);
            break;
        case 'v': watched_thread(watched_vfork, NULL, false); break;
        case 's': watched_thread(watched_sleep, NULL, false); break;
        case 'f': {
            pid_t child = fork();
            if (child == 0) {
                signal(SIGTRAP, SIG_DFL);
                watched_store(&write_);
                _exit(0);
            }
            waitpid(child, &status, 0);
            break;
        }
        case 'd': signal(SIGTRAP, SIG_DFL); break;
        case 'i': { /* it is handled again */
            struct sigaction action = {.sa_sigaction = watched_trap,
                                       .sa_flags = SA_SIGINFO | SA_NODEFER};
            sigaction(SIGTRAP, &action, NULL);
            break;
        }
        case 'c': status = stale_registers_clear(monotonic_ns() + 30000000000u); break;
        case 'e': execlp("sleep", "sleep", "60", NULL); break;
        }
        CHECK(write(answers, &status, sizeof status) == sizeof status);
    }
    _exit(0);
}

static inline void watched_tell(struct watched *target, char what, unsigned slot, long n)
{
    struct {
        char what;
        struct watched_write write;
    } order;

    memset(&order, 0, sizeof order);
    order.what = what;
    order.write = (struct watched_write){slot, n};
    CHECK(write(target->order, &order, sizeof order) == sizeof order);
}

/* Tells it and waits until it is done, however long a busy machine takes for a thousand traps: the
 * status of a child. A target that dies closes its end. */
static inline int watched_do(struct watched *target, char what, unsigned slot, long n)
{
    int status;
    ssize_t n_read;

    watched_tell(target, what, slot, n);
    do
        n_read = read(target->answer, &status, sizeof status);
    while (n_read < 0 && errno == EINTR);
    CHECK(n_read == sizeof status);
    return status;
}

static inline void watched_start(struct watched *out)
{
    int orders[2], answers[2];
    size_t size = 2 * 4096;
    char *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(shared != MAP_FAILED);
    CHECK(pipe(orders) == 0 && pipe(answers) == 0);
    *out = (struct watched){.order = orders[1],
                            .answer = answers[0],
                            .seen = (void *)shared,
                            .places = (void *)(shared + 4096)};
    out->pid = fork();
    if (out->pid == 0) {
        struct sigaction action = {.sa_handler = watched_usr1, .sa_flags = SA_RESTART};
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        watched_self = *out;
        action.sa_flags = SA_RESTART;
        sigaction(SIGUSR1, &action, NULL);
        action =
            (struct sigaction){.sa_sigaction = watched_trap, .sa_flags = SA_SIGINFO | SA_NODEFER};
        sigaction(SIGTRAP, &action, NULL);
        close(orders[1]);
        watched_thread(watched_worker, NULL, false);
        watched_serve(orders[0], answers[1]);
    }
    close(orders[0]);
    close(answers[1]);
    watched_do(out, 'm', 0, 0);
}

static inline char watched_state(const struct watched *target)
{
    char path[64], line[512];

    snprintf(path, sizeof path, "/proc/%d/stat", target->pid);
    FILE *file = fopen(path, "r");
    CHECK(file && fgets(line, sizeof line, file));
    fclose(file);
    return strrchr(line, ')')[2];
}

/* Not by waitpid(2): that would take its stops from the thread that traces it. */
static inline bool watched_lives(const struct watched *target)
{
    char state = watched_state(target);
    return state != 'Z' && state != 'X';
}

static inline void watched_end(struct watched *target)
{
    kill(target->pid, SIGKILL);
    waitpid(target->pid, NULL, 0);
    close(target->order);
    close(target->answer);
    munmap((void *)target->seen, 2 * 4096);
}
