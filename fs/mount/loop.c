#include "fs/mount/loop.h"

#include "agent/base/clock.h"
#include "fs/base/worker.h"

#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Requests rendered side by side; a reader that waits for an event needs no thread. */
#define THREADS 32
#define SHORTAGE_NS 100000000 /* until what was not to be had is asked for again */
/* Between two looks whether all is to end, should a signal be missed. */
#define LOOK_NS 1000000000
#define END_NS 10000000 /* between two signals to a thread that is to end */

struct loop {
    struct fuse_session *session;
    pthread_t threads[THREADS];
    sem_t ended; /* one has: all are to end */
    atomic_int error;
};

static void wake(int number) {}

/* 0: the mount is gone. */
static void give_up(struct loop *loop, int error)
{
    if (error < 0)
        atomic_store(&loop->error, error);
    fuse_session_exit(loop->session);
}

static void wait_a_moment(void) { nap_ns(SHORTAGE_NS); }

static void *answer_requests(void *arg)
{
    struct loop *loop = arg;
    struct fuse_buf request = {0};
    sigset_t woken;

    sigemptyset(&woken);
    sigaddset(&woken, SIGUSR1);
    pthread_sigmask(SIG_UNBLOCK, &woken, NULL);
    while (!fuse_session_exited(loop->session)) {
        int r = fuse_session_receive_buf(loop->session, &request);
        if (r > 0)
            fuse_session_process_buf(loop->session, &request);
        else if (r == -ENOMEM)
            wait_a_moment(); /* nothing was taken: another thread may, or this one later */
        else if (r != -EINTR && r != -EAGAIN)
            give_up(loop, r);
    }
    free(request.mem);
    sem_post(&loop->ended);
    return NULL;
}

/* How many threads there are: fewer where there is no memory for more. */
static size_t start(struct loop *loop)
{
    size_t n = 0;

    while (n < THREADS &&
           worker_start(answer_requests, loop, "probefs-answer", &loop->threads[n]) == 0)
        n++;
    return n;
}

/* A signal that comes before the thread has begun to read is missed. */
static void end(pthread_t thread)
{
    struct timespec until;

    do {
        pthread_kill(thread, SIGUSR1);
        until = timespec_of(monotonic_ns() + END_NS);
    } while (pthread_clockjoin_np(thread, NULL, CLOCK_MONOTONIC, &until) == ETIMEDOUT);
}

int loop_run(struct fuse_session *session)
{
    struct loop loop = {.session = session};
    struct timespec until;

    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = wake}, NULL);
    sem_init(&loop.ended, 0, 0);
    size_t n = start(&loop);
    while (n && !fuse_session_exited(session)) {
        until = timespec_of(monotonic_ns() + LOOK_NS);
        sem_clockwait(&loop.ended, CLOCK_MONOTONIC, &until);
    }
    for (size_t i = 0; i < n; i++)
        end(loop.threads[i]);
    sem_destroy(&loop.ended);
    return n ? atomic_load(&loop.error) : -EAGAIN;
}
