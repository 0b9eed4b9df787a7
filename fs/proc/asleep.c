#include "fs/proc/asleep.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/worker.h"
#include "fs/proc/procfs.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CPUS_MAX CPU_SETSIZE
#define STUCK_NS 1000000000u /* our thread got no time on a processor: no more waiting for it */
#define HURRIED_NS 1000000u  /* a comparison that took longer was interrupted ... */
#define COMPARE_TRIES 3      /* ... and is made again */
#define LOSS_MAX 0.05        /* of a processor's time: with more, nothing is exact */
#define FILE_MAX_SIZE 4096u

static struct {
    pthread_mutex_t lock;
    pthread_cond_t compared;
    bool running;
    uint64_t began; /* the comparison that our thread is at, CLOCK_MONOTONIC */
    struct cpu_clock {
        bool wanted;
        uint64_t reading; /* of the processor's clock when it was compared; 0: it never was */
        uint64_t behind; /* CLOCK_MONOTONIC_RAW - that; at most a tick too much, never too little */
    } cpus[CPUS_MAX];
} clocks = {.lock = PTHREAD_MUTEX_INITIALIZER, .compared = PTHREAD_COND_INITIALIZER};

static uint64_t raw_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return timespec_ns(&t);
}

/* When the thread ran last, by its processor's clock: "se.exec_start   :   13547272.851503", in
 * milliseconds. 0: unknown. */
static int read_last_ran(pid_t pid, pid_t tid, uint64_t *out)
{
    char text[FILE_MAX_SIZE];
    unsigned long long ms, ns;

    ssize_t n = proc_read_task(pid, tid, "sched", text, sizeof text);
    if (n < 0)
        return (int)n;
    const char *line = strstr(text, "\nse.exec_start");
    line = line ? strchr(line, ':') : NULL;
    if (!line || sscanf(line, ": %llu.%6llu", &ms, &ns) != 2)
        return -ENOENT;
    *out = ms * 1000000u + ns;
    return 0;
}

/* ---- the clocks of the processors ---- */

/* Runs on the processor while it compares. */
static void compare(int cpu, struct cpu_clock *out)
{
    pid_t self = getpid(), tid = (pid_t)syscall(SYS_gettid);
    cpu_set_t allowed, only;

    CPU_ZERO(&only);
    CPU_SET(cpu, &only);
    if (sched_getaffinity(0, sizeof allowed, &allowed) < 0 || !CPU_ISSET(cpu, &allowed) ||
        sched_setaffinity(0, sizeof only, &only) < 0)
        return;
    for (int i = 0; i < COMPARE_TRIES; i++) {
        uint64_t before = raw_ns(), reading;
        if (read_last_ran(self, tid, &reading) < 0 || !reading)
            break;
        uint64_t after = raw_ns();
        if (i == 0 || after - reading < out->behind)
            *out = (struct cpu_clock){.reading = reading, .behind = after - reading};
        if (after - before < HURRIED_NS)
            break;
    }
    (void)sched_setaffinity(0, sizeof allowed, &allowed);
}

static int next_wanted(void)
{
    for (int i = 0; i < CPUS_MAX; i++)
        if (clocks.cpus[i].wanted)
            return i;
    return -1;
}

static void *compare_main(void *arg)
{
    _guard_mutex_(&clocks.lock);
    for (int cpu; (cpu = next_wanted()) >= 0;) {
        struct cpu_clock found = {0};
        clocks.began = monotonic_ns();
        pthread_mutex_unlock(&clocks.lock);
        compare(cpu, &found);
        pthread_mutex_lock(&clocks.lock);
        if (found.reading)
            clocks.cpus[cpu] = found;
        clocks.cpus[cpu].wanted = false;
        pthread_cond_broadcast(&clocks.compared);
    }
    clocks.running = false;
    return NULL;
}

/* Has a clock compared; with the lock. */
static void want(int cpu, uint64_t until)
{
    const struct timespec t = timespec_of(until);
    pthread_t thread;

    clocks.cpus[cpu].wanted = true;
    if (clocks.running && monotonic_ns() - clocks.began > STUCK_NS)
        return;
    if (!clocks.running) {
        clocks.began = monotonic_ns();
        if (worker_start(compare_main, NULL, "probefs-clocks", &thread) < 0)
            return;
        clocks.running = true;
        pthread_detach(thread);
    }
    while (clocks.cpus[cpu].wanted)
        if (pthread_cond_clockwait(&clocks.compared, &clocks.lock, CLOCK_MONOTONIC, &t))
            return;
}

/* A clock falls behind further and further: compared after `ran`, it was behind no more then. */
static int since_reading(int cpu, uint64_t ran, uint64_t until, struct asleep *out)
{
    struct cpu_clock *clock = &clocks.cpus[cpu];

    _guard_mutex_(&clocks.lock);
    if (clock->reading <= ran)
        want(cpu, until);
    if (clock->reading <= ran)
        return -EAGAIN;
    uint64_t now = raw_ns(), then = ran + clock->behind;
    out->ns = now > then ? now - then : 0;
    out->exact = (double)clock->behind < LOSS_MAX * (double)now;
    return 0;
}

/* ---- a thread ---- */

int asleep_for(pid_t pid, pid_t tid, uint64_t until, struct asleep *out)
{
    char text[FILE_MAX_SIZE];
    struct proc_stat stat;
    uint64_t ran, again;

    int r = read_last_ran(pid, tid, &ran);
    if (r < 0)
        return r;
    ssize_t n = proc_read_task(pid, tid, "stat", text, sizeof text);
    if (n < 0)
        return (int)n;
    if (!proc_stat_parse(text, &stat) || stat.state == 'R' || stat.processor < 0 ||
        stat.processor >= CPUS_MAX)
        return -EAGAIN;
    r = read_last_ran(pid, tid, &again); /* the processor is the one that it ran on */
    if (r < 0)
        return r;
    return ran && ran == again ? since_reading(stat.processor, ran, until, out) : -EAGAIN;
}
