#include "fs/process/ends.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/array.h"
#include "fs/base/worker.h"
#include "fs/proc/procfs.h"
#include "fs/watch/follow.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#define WAKE 0 /* no process has this serial */
#define LOOK_END_NS 1000000000u

struct watched {
    struct process *process; /* a reference */
    int pidfd;
    struct watched *next;
};

struct ends {
    struct exited *exited;
    int epoll; /* of the pidfds, each with its process's serial, and of wake */
    int wake;  /* an eventfd: there is something new to wait for, or it is over */

    pthread_mutex_t lock; /* guards what follows */
    struct watched *first;
    bool running, ending;
    bool stirred;          /* some agent said that it records something else */
    bool looking;          /* the second thread is there */
    pthread_cond_t looked; /* it is there no more */
    pthread_t thread;
};

static int add(const struct ends *ends, int fd, uint64_t serial)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = serial};
    return epoll_ctl(ends->epoll, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

int ends_new(struct exited *exited, struct ends **out)
{
    struct ends *ends = calloc(1, sizeof *ends);
    if (!ends)
        return -ENOMEM;
    pthread_mutex_init(&ends->lock, NULL);
    pthread_cond_init(&ends->looked, NULL);
    ends->exited = exited;
    ends->epoll = epoll_create1(EPOLL_CLOEXEC);
    ends->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int r = ends->epoll < 0 || ends->wake < 0 ? -errno : add(ends, ends->wake, WAKE);
    if (r < 0) {
        ends_free(ends);
        return r;
    }
    *out = ends;
    return 0;
}

static void watched_free(struct watched *watched)
{
    close(watched->pidfd);
    process_unref(watched->process);
    free(watched);
}

/* The end of the second thread. False: it hangs. */
static bool wait_for_look(struct ends *ends)
{
    const struct timespec t = timespec_of(monotonic_ns() + LOOK_END_NS);

    _guard_mutex_(&ends->lock);
    while (ends->looking)
        if (pthread_cond_clockwait(&ends->looked, &ends->lock, CLOCK_MONOTONIC, &t) == ETIMEDOUT)
            return !ends->looking;
    return true;
}

void ends_free(struct ends *ends)
{
    if (!ends)
        return;
    pthread_mutex_lock(&ends->lock);
    ends->ending = true;
    pthread_mutex_unlock(&ends->lock);
    eventfd_write(ends->wake, 1);
    if (ends->running)
        pthread_join(ends->thread, NULL);
    if (!wait_for_look(ends))
        return;
    for (struct watched *watched; (watched = ends->first);) {
        ends->first = watched->next;
        watched_free(watched);
    }
    if (ends->epoll >= 0)
        close(ends->epoll);
    if (ends->wake >= 0)
        close(ends->wake);
    pthread_cond_destroy(&ends->looked);
    pthread_mutex_destroy(&ends->lock);
    free(ends);
}

/* ---- the thread ---- */

struct process *ends_find(struct ends *ends, uint64_t serial)
{
    _guard_mutex_(&ends->lock);
    for (struct watched *watched = ends->first; watched; watched = watched->next)
        if (watched->process->serial == serial)
            return process_ref(watched->process);
    return NULL;
}

static bool is_over(struct ends *ends)
{
    _guard_mutex_(&ends->lock);
    return ends->ending;
}

/* Milliseconds until something that is kept gets too old; -1: nothing does. */
static int sweep(struct ends *ends)
{
    uint64_t ns = exited_sweep(ends->exited, monotonic_ns());
    uint64_t ms = ns / 1000000u + 1;

    return ns == UINT64_MAX ? -1 : ms < INT32_MAX ? (int)ms : INT32_MAX;
}

static void *ends_main(void *arg)
{
    struct ends *ends = arg;
    struct epoll_event event;
    eventfd_t n;

    while (!is_over(ends)) {
        if (epoll_wait(ends->epoll, &event, 1, sweep(ends)) < 1)
            continue;
        if (event.data.u64 == WAKE) {
            (void)eventfd_read(ends->wake, &n);
            continue;
        }
        struct process *process = ends_find(ends, event.data.u64);
        if (process)
            ends_note(ends, process);
        process_unref(process);
    }
    return NULL;
}

/* ---- the second thread ---- */

/* Lists the processes that are waited for; none where nothing has changed since the last time: then
 * the thread ends. */
static bool list_stirred(struct ends *ends, struct process_list *out)
{
    _guard_mutex_(&ends->lock);
    if (!ends->stirred || ends->ending) {
        ends->looking = false;
        pthread_cond_broadcast(&ends->looked);
        return false;
    }
    ends->stirred = false;
    for (struct watched *watched = ends->first; watched; watched = watched->next)
        if (ARRAY_GROW(out->items, out->alloc, out->n + 1) == 0)
            out->items[out->n++] = process_ref(watched->process);
    return true;
}

static void look_at(struct process *process)
{
    process_watch(process);
    if (recording_watching(process->recording))
        watches_follow(process->watches);
}

static void *look_main(void *arg)
{
    struct ends *ends = arg;
    struct process_list list = {0};

    while (list_stirred(ends, &list)) {
        for (size_t i = 0; i < list.n; i++)
            look_at(list.items[i]);
        process_list_deinit(&list);
    }
    return NULL;
}

void ends_stir(struct ends *ends)
{
    pthread_t thread;

    _guard_mutex_(&ends->lock);
    ends->stirred = true;
    if (ends->looking || ends->ending || worker_start(look_main, ends, "probefs-look", &thread) < 0)
        return;
    ends->looking = true;
    pthread_detach(thread);
}

/* ---- what others call ---- */

/* Caller holds lock. */
static int start(struct ends *ends)
{
    int r = ends->running ? 0 : worker_start(ends_main, ends, "probefs-ends", &ends->thread);
    ends->running = ends->running || r == 0;
    return r;
}

/* A pidfd of its own: that of the target goes with the target. */
static int copy_pidfd(struct process *process)
{
    struct target *target = process_held(process);
    int fd = target && target->pidfd >= 0 ? fcntl(target->pidfd, F_DUPFD_CLOEXEC, 0) : -1;

    target_unref(target);
    if (fd >= 0 && !descriptor_spare(fd)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Takes over pidfd. Caller holds lock. */
static int watch(struct ends *ends, struct process *process, int pidfd)
{
    struct watched *watched = calloc(1, sizeof *watched);

    int r = watched ? start(ends) : -ENOMEM;
    if (r == 0)
        r = add(ends, pidfd, process->serial);
    if (r < 0) {
        close(pidfd);
        free(watched);
        return r;
    }
    *watched = (struct watched){process_ref(process), pidfd, ends->first};
    ends->first = watched;
    process->watched = true;
    return 0;
}

static bool is_watched(struct ends *ends, const struct process *process)
{
    _guard_mutex_(&ends->lock);
    return process->watched;
}

void ends_watch(struct ends *ends, struct process *process)
{
    int pidfd = is_watched(ends, process) ? -1 : copy_pidfd(process);
    if (pidfd < 0)
        return;
    _guard_mutex_(&ends->lock);
    if (ends->ending || process->watched || process_ended(process))
        close(pidfd);
    else
        watch(ends, process, pidfd);
}

static void unwatch(struct ends *ends, const struct process *process)
{
    struct watched **at = &ends->first, *watched;

    pthread_mutex_lock(&ends->lock);
    while (*at && (*at)->process != process)
        at = &(*at)->next;
    watched = *at;
    if (watched) {
        *at = watched->next;
        epoll_ctl(ends->epoll, EPOLL_CTL_DEL, watched->pidfd, NULL);
    }
    pthread_mutex_unlock(&ends->lock);
    if (watched)
        watched_free(watched);
}

void ends_note(struct ends *ends, struct process *process)
{
    bool left = process_end(process);
    if (left)
        exited_add(ends->exited, process, monotonic_ns());
    unwatch(ends, process);
    if (left)
        eventfd_write(ends->wake, 1); /* it will get too old */
}
