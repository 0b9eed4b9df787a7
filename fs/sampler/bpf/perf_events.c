#include "fs/sampler/bpf/perf_events.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/array.h"
#include "fs/proc/procfs.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#define VARY_UNIT 1024       /* the usual rate */
#define COST_PERIOD_NS 50000 /* of the event whose cost is measured */
#define COST_SPIN_NS 2000000 /* for which the processor is kept busy, each time */
#define COST_ROUNDS 4        /* with it, and without */

static int event_new(struct perf_event_attr *attr, pid_t tid)
{
    int fd = (int)syscall(SYS_perf_event_open, attr, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);

    return fd < 0 ? -errno : fd;
}

/* The last one of this thread, or the first of a later one; the end: there is none. */
static struct event *first_from(const struct perf_events *events, pid_t tid)
{
    return events->items + LOWER_BOUND(events->n, i, events->items[i].tid < tid);
}

/* NULL: none is its own. */
static struct event *find_event(const struct perf_events *events, pid_t tid)
{
    struct event *at = first_from(events, tid);

    return at < events->items + events->n && at->tid == tid ? at : NULL;
}

/* Threads are listed first: one that has inherited an event mustn't get another one. */
static int list_thread(void *arg, int tasks, pid_t tid)
{
    struct perf_events *events = arg;

    if (events->n >= PERF_EVENTS_MAX)
        return -E2BIG;
    if (ARRAY_GROW(events->items, events->alloc, events->n + 1) < 0)
        return -ENOMEM;
    struct event *at = first_from(events, tid);
    memmove(at + 1, at, (size_t)(events->items + events->n - at) * sizeof *at);
    *at = (struct event){-1, tid};
    events->n++;
    return 0;
}

/* A period at random, of that rate more or less by half; 0: none can be had. */
static uint64_t any_period(uint64_t usual)
{
    uint64_t random;

    if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random)
        return 0;
    return usual * VARY_UNIT / (VARY_UNIT / 2 + random % VARY_UNIT);
}

static int open_event(struct perf_events *events, struct event *event, struct text *why)
{
    struct perf_event_attr attr = events->attr;

    if (attr.config == PERF_COUNT_SW_TASK_CLOCK) {
        event->period = any_period(attr.sample_period);
        attr.sample_period = event->period ? event->period : attr.sample_period;
    }
    int fd = event_new(&attr, event->tid);

    if (fd == -ESRCH)
        return 0;                           /* that thread has ended */
    if (fd >= 0 && !descriptor_spare(fd)) { /* others need some, too */
        close(fd);
        fd = -EMFILE;
    }
    if (fd == -EPERM || fd == -EACCES)
        text_puts(why, "not allowed to open performance events: the daemon needs CAP_PERFMON, "
                       "or to be root");
    else if (fd == -EMFILE || fd == -ENFILE)
        text_printf(why, "too few file descriptors for an event in each of its threads");
    else if (fd < 0)
        text_printf(why, "a performance event can't be opened: %s", strerror(-fd));
    if (fd < 0)
        return fd;
    event->fd = fd;
    if (ioctl(fd, PERF_EVENT_IOC_SET_BPF, events->part) < 0) {
        int error = errno;
        text_printf(why, "a program can't be attached to a performance event: %s", strerror(error));
        return -error;
    }
    return 0;
}

int perf_events_open(struct perf_events *events, pid_t pid, pid_t tid, uint64_t config,
                     uint64_t period, bool children, int part, struct text *why)
{
    struct perf_events all = {.attr = {.size = sizeof all.attr,
                                       .type = PERF_TYPE_SOFTWARE,
                                       .config = config,
                                       .sample_period = period,
                                       .disabled = 1,
                                       .inherit = !tid,
                                       .inherit_thread = !tid && !children,
                                       .exclude_hv = 1},
                              .part = part};
    int r = tid ? list_thread(&all, -1, tid) : proc_each_task(pid, list_thread, &all);
    bool any = false;

    if (r == -E2BIG)
        text_printf(why, "the process has more than %d threads", PERF_EVENTS_MAX);
    for (size_t i = 0; i < all.n && r == 0; i++) {
        r = open_event(&all, &all.items[i], why);
        any |= all.items[i].fd >= 0;
    }
    if (r == 0 && !any)
        r = -ESRCH;
    for (size_t i = 0; i < all.n && r == 0; i++)
        if (all.items[i].fd >= 0 && ioctl(all.items[i].fd, PERF_EVENT_IOC_ENABLE, 0) < 0)
            r = -errno;
    if (r < 0 && !why->size)
        text_printf(why, "%s", r == -ESRCH ? "the process has ended" : strerror(-r));
    if (r < 0)
        perf_events_deinit(&all);
    *events = all;
    return r;
}

void perf_events_add(struct perf_events *events, pid_t tid, bool anew)
{
    _cleanup_(text_deinit) struct text why = TEXT_INIT;

    if ((!anew && find_event(events, tid)) || list_thread(events, -1, tid) < 0)
        return;
    struct event *event = find_event(events, tid);
    open_event(events, event, &why);
    if (event->fd >= 0) {
        ioctl(event->fd, PERF_EVENT_IOC_ENABLE, 0);
        return;
    }
    events->n--;
    memmove(event, event + 1, (size_t)(events->items + events->n - event) * sizeof *event);
}

uint64_t perf_events_vary(struct perf_events *events, pid_t tid)
{
    struct event *event = find_event(events, tid);
    uint64_t usual = events->attr.sample_period, period = any_period(usual);

    if (!event || event->fd < 0 || !period || ioctl(event->fd, PERF_EVENT_IOC_PERIOD, &period) < 0)
        return 0;
    uint64_t before = event->period ? event->period : usual;
    event->period = period;
    return before / 2;
}

void perf_events_deinit(struct perf_events *events)
{
    for (size_t i = 0; i < events->n; i++)
        if (events->items[i].fd >= 0)
            close(events->items[i].fd);
    free(events->items);
    *events = (struct perf_events){0};
}

/* ---- what one costs ---- */

/* Turns of a loop that does nothing, in so much processor time. */
static uint64_t spin(uint64_t ns, uint64_t turns)
{
    uint64_t start = thread_cpu_ns(), done = 0;

    while (turns ? done < turns : thread_cpu_ns() - start < ns) {
        for (volatile int i = 0; i < 1000; i++)
            ;
        done++;
    }
    return turns ? thread_cpu_ns() - start : done;
}

static void on_trap(int number) {}

/* Has SIGTRAP come to this thread, and do nothing. */
static void let_trap(struct sigaction *before, sigset_t *mask)
{
    const struct sigaction ours = {.sa_handler = on_trap};
    sigset_t trap;

    sigemptyset(&trap);
    sigaddset(&trap, SIGTRAP);
    sigaction(SIGTRAP, &ours, before);
    pthread_sigmask(SIG_UNBLOCK, &trap, mask);
}

static uint64_t compare(int fd)
{
    uint64_t turns = spin(COST_SPIN_NS, 0), without = UINT64_MAX, with = UINT64_MAX;

    for (int i = 0; i < COST_ROUNDS && turns; i++) { /* the least of each: the rest is noise */
        uint64_t ns = spin(0, turns);
        without = ns < without ? ns : without;
        ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
        ns = spin(0, turns);
        ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
        with = ns < with ? ns : with;
    }
    return with > without ? (with - without) / (with / COST_PERIOD_NS) : 0;
}

uint64_t perf_events_cost(bool trapped)
{
    struct perf_event_attr attr = {.size = sizeof attr,
                                   .type = PERF_TYPE_SOFTWARE,
                                   .config = PERF_COUNT_SW_TASK_CLOCK,
                                   .sample_period = COST_PERIOD_NS,
                                   .disabled = 1,
                                   .exclude_kernel = trapped,
                                   .exclude_hv = 1,
                                   .remove_on_exec = trapped,
                                   .sigtrap = trapped};
    struct sigaction before;
    sigset_t mask;
    int fd = event_new(&attr, 0);
    if (fd < 0)
        return 0;
    if (trapped)
        let_trap(&before, &mask);
    uint64_t ns = compare(fd);
    close(fd);
    if (trapped) {
        pthread_sigmask(SIG_SETMASK, &mask, NULL);
        sigaction(SIGTRAP, &before, NULL);
    }
    return ns;
}
