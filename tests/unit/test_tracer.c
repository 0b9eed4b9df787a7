/* Stopping a thread that sleeps in a system call and gets no processor: it stops when nobody waits
 * for that any more, and the call must not end by it. */
#include "fs/trace/tracer.h"

#include "agent/base/clock.h"
#include "fs/inject/borrow.h"
#include "fs/proc/lwp.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLEEP_S 1
#define GREEDY_NS (3 * TRACER_STOP_DEADLINE_NS)
#define TRIES 20 /* on a busy machine it is this one that gets no processor */
#define SKIPPED 77

static size_t processor; /* that its children share */

static void share_processor(void)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
}

/* Leaves one to its children. False: there is but one. */
static bool leave_processor(void)
{
    cpu_set_t set;

    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    while (!CPU_ISSET(processor, &set))
        processor++;
    CPU_CLR(processor, &set);
    return sched_setaffinity(0, sizeof set, &set) == 0;
}

/* Starts a process that ends with this one. *says: what run() writes. */
static pid_t start(int (*run)(int says), int *says)
{
    int ends[2];

    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        share_processor();
        _exit(run(ends[1]));
    }
    close(ends[1]);
    *says = ends[0];
    return child;
}

/* Waits in the call that nothing makes a process enter again but its tracer. */
static int sleep_in_recv(int says)
{
    const struct timeval timeout = {.tv_sec = SLEEP_S};
    int ends[2];
    char byte;

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0 ||
        setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) < 0)
        return errno;
    return recv(ends[0], &byte, 1, 0) < 0 && write(says, "", 1) == 1 ? errno : EPROTO;
}

/* Takes the processor, and says so first. */
static int be_greedy(int says)
{
    const struct sched_param first = {.sched_priority = 1};

    if (sched_setscheduler(0, SCHED_FIFO, &first) < 0)
        return SKIPPED;
    uint64_t end = monotonic_ns() + GREEDY_NS;
    if (write(says, "", 1) != 1)
        return EPROTO;
    while (monotonic_ns() < end)
        ;
    return 0;
}

static int stop(struct tracer *tracer, void *arg) { return tracer_stop(tracer, *(pid_t *)arg); }

static int interrupt(struct tracer *tracer, void *arg)
{
    return tracer_interrupt(tracer, *(pid_t *)arg);
}

/* Waits for it, and so it has stopped only then; said as the others say it. */
static int borrow(struct tracer *tracer, void *arg)
{
    uint64_t begin = monotonic_ns();
    struct borrow borrow;

    int r = borrow_stop(*(pid_t *)arg, &borrow);
    if (r < 0)
        return r;
    borrow_restart(&borrow);
    borrow_release(&borrow);
    return monotonic_ns() - begin > TRACER_STOP_DEADLINE_NS ? -ETIMEDOUT : 0;
}

/* Once. What run() said. */
static int try(int (*run)(struct tracer *tracer, void *arg))
{
    int victim_says, greedy_says, status;
    uint64_t begin = monotonic_ns();
    char byte;

    pid_t victim = start(sleep_in_recv, &victim_says);
    while (lwp_state(victim, victim) != 'S')
        usleep(1000);
    pid_t greedy = start(be_greedy, &greedy_says);
    bool taken = read(greedy_says, &byte, 1) == 1;
    int r = taken ? tracer_run(run, &victim) : 0;
    CHECK(waitpid(greedy, &status, 0) == greedy && WIFEXITED(status));
    if (WEXITSTATUS(status) == SKIPPED) {
        fprintf(stderr, "skipped: nothing may be of real time here\n");
        exit(SKIPPED);
    }
    CHECK_INT(WEXITSTATUS(status), 0);
    CHECK(read(victim_says, &byte, 1) == 1);
    CHECK(waitpid(victim, &status, 0) == victim && WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), EAGAIN); /* EINTR: it was told of us */
    CHECK(monotonic_ns() - begin >= SLEEP_S * 1000000000ull);
    close(victim_says);
    close(greedy_says);
    return r;
}

static void test(int (*run)(struct tracer *tracer, void *arg))
{
    int r = 0;

    for (int i = 0; i < TRIES && r == 0; i++)
        r = try(run);
    CHECK_INT(r, -ETIMEDOUT);
}

int main(void)
{
    if (!leave_processor()) {
        fprintf(stderr, "skipped: there is one processor\n");
        return SKIPPED;
    }
    test(stop);
    test(interrupt);
    test(borrow);
    return 0;
}
