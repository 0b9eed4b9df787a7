#include "agent/base/clock.h"
#include "fs/proc/may_hang.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <sched.h>
#include <unistd.h>

#define NOBODY 5000000 /* more than any pid (pid_max is 2^22 at most): these are all root's */

static atomic_int freed, ran;
static int pipe_ends[2]; /* whoever reads it sleeps */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct job {
    struct may_hang work;
    void (*inner)(void);
    pthread_t thread;
};

static void job_free(struct may_hang *work)
{
    atomic_fetch_add(&freed, 1);
    free(work);
}

static void run(struct may_hang *work)
{
    struct job *job = (struct job *)work;

    job->thread = pthread_self();
    if (job->inner)
        job->inner();
    atomic_fetch_add(&ran, 1);
}

static struct job *new_job(pid_t pid, void (*inner)(void))
{
    struct job *job = calloc(1, sizeof *job);
    job->work = (struct may_hang){.pid = pid, .run = run, .free = job_free};
    job->inner = inner;
    may_hang_init(&job->work);
    return job;
}

static int run_job(pid_t pid, void (*inner)(void), const struct interrupt *interrupt)
{
    struct job *job = new_job(pid, inner);
    int r = may_hang_run(&job->work, interrupt);
    may_hang_unref(&job->work);
    return r;
}

static void read_pipe(void)
{
    char byte;
    CHECK_INT(read(pipe_ends[0], &byte, 1), 1);
}

static void let_go(int n)
{
    while (n--)
        CHECK_INT(write(pipe_ends[1], "", 1), 1);
    while (may_hang_any())
        sched_yield();
}

static void wait_until_freed(int wanted)
{
    while (atomic_load(&freed) < wanted)
        sched_yield();
    CHECK_INT(freed, wanted);
    atomic_store(&freed, 0);
}

static void of_the_same(void)
{
    pthread_t self = pthread_self();
    struct job *same = new_job(NOBODY, NULL), *other = new_job(NOBODY + 1, NULL);

    CHECK_INT(may_hang_run(&same->work, NULL), 0);
    CHECK(pthread_equal(same->thread, self));
    CHECK_INT(may_hang_run(&other->work, NULL), 0);
    CHECK(!pthread_equal(other->thread, self));
    may_hang_unref(&same->work);
    may_hang_unref(&other->work);
}

static void test_runs(void)
{
    struct job *none = new_job(0, NULL);

    CHECK_INT(may_hang_run(&none->work, NULL), 0);
    CHECK(pthread_equal(none->thread, pthread_self()));
    may_hang_unref(&none->work);
    CHECK_INT(run_job(NOBODY, of_the_same, NULL), 0);
    CHECK_INT(ran, 4);
    wait_until_freed(4);
    CHECK(!may_hang_any());
}

static void test_hangs(void)
{
    struct job *job = new_job(NOBODY, read_pipe);
    uint64_t start = monotonic_ns();

    atomic_store(&ran, 0);
    CHECK_INT(may_hang_run(&job->work, NULL), -ETIMEDOUT);
    CHECK(monotonic_ns() - start > 1500000000u);
    CHECK(interrupted(&job->work.unwanted));
    CHECK(may_hang_any());
    may_hang_unref(&job->work);
    CHECK_INT(run_job(NOBODY, NULL, NULL), -ETIMEDOUT); /* at once: it doesn't run */
    CHECK_INT(ran, 0);
    CHECK_INT(run_job(NOBODY + 1, NULL, NULL), 0);
    CHECK_INT(ran, 1);
    let_go(1);
    CHECK_INT(run_job(NOBODY, NULL, NULL), 0);
    CHECK_INT(ran, 3);
    wait_until_freed(4);
}

static void lock_and_read(void)
{
    pthread_mutex_lock(&lock);
    read_pipe();
    pthread_mutex_unlock(&lock);
}

static void lock_only(void)
{
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
}

/* Who waits for a lock that one that hangs has, hangs too; where it is only slow, nobody does. */
static void test_lock(void)
{
    struct job *holds = new_job(NOBODY, lock_and_read), *waits = new_job(NOBODY, lock_only);

    CHECK_INT(may_hang_start(&holds->work), 0);
    while (pthread_mutex_trylock(&lock) == 0) {
        pthread_mutex_unlock(&lock);
        sched_yield();
    }
    CHECK_INT(may_hang_start(&waits->work), 0);
    may_hang_wait_all((struct may_hang *[]){&waits->work, NULL, &holds->work}, 3);
    CHECK_INT(waits->work.state, MAY_HANG_LEFT);
    CHECK_INT(holds->work.state, MAY_HANG_LEFT);
    may_hang_unref(&holds->work);
    may_hang_unref(&waits->work);
    let_go(1);
    wait_until_freed(2);
}

static void sleep_long(void)
{
    const struct timespec t = {.tv_sec = 2, .tv_nsec = 500000000};
    nanosleep(&t, NULL);
}

/* What waits with a deadline of its own, or computes, is waited for. */
static void test_slow(void)
{
    CHECK_INT(run_job(NOBODY, sleep_long, NULL), 0);
    wait_until_freed(1);
}

static void test_interrupt(void)
{
    const struct interrupt raised = {.raised = true, .fd = -1};

    CHECK_INT(run_job(NOBODY, read_pipe, &raised), -EINTR);
    CHECK_INT(run_job(NOBODY + 1, NULL, &raised), 0);
    let_go(1);
    wait_until_freed(2);
}

/* One user's. */
static void test_many(void)
{
    struct may_hang *works[MAY_HANG_USER];

    for (int i = 0; i < MAY_HANG_USER; i++) {
        works[i] = &new_job(NOBODY + i, read_pipe)->work;
        CHECK_INT(may_hang_start(works[i]), 0);
    }
    may_hang_wait_all(works, MAY_HANG_USER);
    for (int i = 0; i < MAY_HANG_USER; i++) {
        CHECK_INT(works[i]->state, MAY_HANG_LEFT);
        may_hang_unref(works[i]);
    }
    CHECK_INT(run_job(NOBODY + MAY_HANG_USER, NULL, NULL), -ETIMEDOUT);
    let_go(MAY_HANG_USER);
    CHECK_INT(run_job(NOBODY + MAY_HANG_USER, NULL, NULL), 0);
    wait_until_freed(MAY_HANG_USER + 2);
}

int main(void)
{
    CHECK_INT(pipe(pipe_ends), 0);
    test_runs();
    test_hangs();
    test_lock();
    test_slow();
    test_interrupt();
    test_many();
    return 0;
}
