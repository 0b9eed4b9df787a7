#include "agent/base/clock.h"
#include "fs/proc/asleep.h"
#include "fs/proc/lwp.h"
#include "fs/proc/runs.h"
#include "fs/remote/moment/standing.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#define S 1000000000ull
#define SLACK (S / 20) /* by which clocks may differ meanwhile */

static int wakes[2];
static atomic_ullong fell_asleep;
static atomic_int sleeper;

static void *sleep_main(void *arg)
{
    char byte;

    atomic_store(&sleeper, (int)syscall(SYS_gettid));
    do
        atomic_store(&fell_asleep, monotonic_ns());
    while (read(wakes[0], &byte, 1) == 1);
    return NULL;
}

static void nap(void) { usleep(20000); }

/* Until it is asleep and stays so; how often it has run by then. */
static struct runs settle(void)
{
    struct runs runs = {0}, before;

    do {
        before = runs;
        nap();
        CHECK_INT(runs_read(getpid(), atomic_load(&sleeper), &runs), 0);
    } while (!atomic_load(&sleeper) || lwp_state(getpid(), atomic_load(&sleeper)) != 'S' ||
             runs.n != before.n || runs.ns != before.ns);
    return runs;
}

/* Never more than it is, and less only by what the clocks of processors may lose. */
static void check_told(void)
{
    struct asleep told;
    int r;

    while ((r = asleep_for(getpid(), atomic_load(&sleeper), monotonic_ns() + S, &told)) == -EAGAIN)
        nap();
    uint64_t truth = monotonic_ns() - atomic_load(&fell_asleep);
    if (r == 0)
        CHECK(told.ns <= truth + SLACK);
    else
        CHECK(r == -ESRCH || r == -ENOENT); /* this kernel doesn't say */
}

static void test_thread(void)
{
    struct runs runs, again;
    pthread_t thread;
    char byte = 0;

    CHECK_INT(pipe(wakes), 0);
    CHECK_INT(pthread_create(&thread, NULL, sleep_main, NULL), 0);
    while (!atomic_load(&sleeper))
        nap();
    runs = settle();
    for (int i = 0; i < 10; i++) {
        nap();
        check_told();
    }
    CHECK_INT(runs_read(getpid(), atomic_load(&sleeper), &again), 0);
    CHECK(again.n == runs.n && again.ns == runs.ns);

    uint64_t before = atomic_load(&fell_asleep);
    CHECK_INT(write(wakes[1], &byte, 1), 1);
    while (atomic_load(&fell_asleep) == before)
        nap();
    again = settle();
    CHECK(again.n > runs.n);
    CHECK(runs_voluntary(getpid(), atomic_load(&sleeper)) > 0);
    check_told(); /* since the second time */
    close(wakes[1]);
    pthread_join(thread, NULL);
    CHECK_INT(runs_read(getpid(), 0x7fffffff, &again), -ESRCH);
}

static void check_words(enum standing_kind kind, bool at_least, const char *want)
{
    const struct standing standing = {.kind = kind,
                                      .ns = 34 * S + 290000000u,
                                      .at_least = at_least};
    struct text text = TEXT_INIT;

    standing_add(&standing, &text);
    CHECK_STR(text.data, want);
    text_deinit(&text);
}

static void test_words(void)
{
    check_words(STANDS, false, "for 34.2 s");
    check_words(STANDS, true, "for at least 34.2 s");
    check_words(SEEN_LINE, false, "seen on this line for 34.2 s");
    check_words(SEEN_FUNCTION, false, "seen in this function for 34.2 s");
    check_words(SEEN_AWAITING, false, "seen here for 34.2 s");
    CHECK(!standing_said(&(struct standing){.kind = STANDS, .ns = S - 1}));
    CHECK(standing_said(&(struct standing){.kind = STANDS, .ns = S}));
    CHECK(!standing_said(&(struct standing){.ns = S}));
}

int main(void)
{
    test_thread();
    test_words();
    return 0;
}
