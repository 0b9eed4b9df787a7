/* What the process uses, each second: a thread that needs no GIL, so that it
 * goes on while the program hangs.
 *
 * Most is what getrusage(2) says. The rest is in /proc/self/stat, whose descriptor
 * is kept open since the program may change its root; it is known by its inode,
 * since the program may close it. */
#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "agent/base/thread.h"
#include "agent/record/recorder.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#define STACK (64u * 1024)
#define PERIOD_NS 1000000000ull
#define SOON_NS 10000000ull /* until there is the ring */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop;
    bool exists; /* the channel's thread's business */
    pthread_t thread;
} sampler = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* /proc/self/stat, the thread's. */
static int fd = -1;
static struct stat identity;

static bool is_ours(void)
{
    struct stat st;
    return fd >= 0 && fstat(fd, &st) == 0 && st.st_ino == identity.st_ino &&
           st.st_dev == identity.st_dev;
}

/* -1: it is not to be had; what is there instead, in a root that somebody made, is not read. */
static int open_stat(void)
{
    struct statfs fs;

    _cleanup_close_ int opened =
        open("/proc/self/stat", O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (opened < 0 || fstatfs(opened, &fs) < 0 || fs.f_type != PROC_SUPER_MAGIC ||
        fstat(opened, &identity) < 0)
        return -1;
    return steal_fd(opened);
}

static void close_stat(void)
{
    if (is_ours())
        close(fd);
    fd = -1;
}

/* Numbers 20 and 24 of proc_pid_stat(5). */
static void read_stat(struct process_samples_row *row)
{
    long threads, pages;
    char text[1024];

    if (!is_ours())
        fd = open_stat();
    ssize_t n = fd >= 0 ? pread(fd, text, sizeof text - 1, 0) : -1;
    if (n <= 0)
        return;
    text[n] = '\0';
    const char *after_name = strrchr(text, ')');
    if (!after_name || sscanf(after_name + 1,
                              " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d"
                              " %*d %ld %*d %*u %*u %ld",
                              &threads, &pages) != 2)
        return;
    row->threads = threads;
    row->rss = pages * sysconf(_SC_PAGESIZE);
}

static double seconds_of(struct timeval t) { return (double)t.tv_sec + (double)t.tv_usec * 1e-6; }

static void sample(struct ring *ring)
{
    struct process_samples_row row = {.ts = realtime_s(),
                                      .rss = RING_NULL_INTEGER,
                                      .threads = RING_NULL_INTEGER};
    struct rusage used;

    if (getrusage(RUSAGE_SELF, &used) < 0)
        return;
    row.cpu_user = seconds_of(used.ru_utime);
    row.cpu_system = seconds_of(used.ru_stime);
    row.minor_faults = used.ru_minflt;
    row.major_faults = used.ru_majflt;
    row.voluntary_switches = used.ru_nvcsw;
    row.involuntary_switches = used.ru_nivcsw;
    read_stat(&row);
    (void)process_samples_append(ring, &row, NULL);
}

/* Waits until that time, CLOCK_MONOTONIC in ns. False: the thread is to end. */
static bool wait_until(uint64_t ns)
{
    const struct timespec until = timespec_of(ns);

    _guard_mutex_(&sampler.lock);
    while (!sampler.stop)
        if (pthread_cond_clockwait(&sampler.changed, &sampler.lock, CLOCK_MONOTONIC, &until))
            return !sampler.stop;
    return false;
}

static void *sampler_main(void *arg)
{
    uint64_t next = monotonic_ns();

    thread_name("probe-sampler");
    do {
        struct ring *ring = recorder_ring(RECORDED_PROCESS_SAMPLES);
        uint64_t now = monotonic_ns();
        if (ring)
            sample(ring);
        next = ring ? next + PERIOD_NS : now + SOON_NS;
        if (next < now)
            next = now + PERIOD_NS; /* the process was stopped: what was missed is missed */
    } while (wait_until(next));
    close_stat();
    return NULL;
}

static int process_on(struct interpreter *none, const struct proto_record *record,
                      char words[PROTO_WORDS_MAX])
{
    if (sampler.exists)
        return 0;
    sampler.stop = false;
    int r = thread_spawn(STACK, false, sampler_main, NULL, &sampler.thread);
    if (r < 0)
        snprintf(words, PROTO_WORDS_MAX, "no thread could be made: %s", strerrordesc_np(-r));
    sampler.exists = r == 0;
    return r;
}

static void process_off(struct interpreter *none, char words[PROTO_WORDS_MAX])
{
    if (!sampler.exists)
        return;
    {
        _guard_mutex_(&sampler.lock);
        sampler.stop = true;
        pthread_cond_broadcast(&sampler.changed);
    }
    pthread_join(sampler.thread, NULL);
    sampler.exists = false;
}

static void process_forget(void)
{
    pthread_mutex_init(&sampler.lock, NULL);
    pthread_cond_init(&sampler.changed, NULL);
    sampler.exists = false;
    close_stat();
}

const struct recorder process_recorder = {.on = process_on,
                                          .off = process_off,
                                          .forget = process_forget};
