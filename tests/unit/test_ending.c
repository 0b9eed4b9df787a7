#include "fs/procfs.h"
#include "tests/unit/check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void *stay(void *arg)
{
    pause();
    return arg;
}

/* Its main thread ends, another one lives. */
static void leave_one(void)
{
    pthread_t thread;

    pthread_create(&thread, NULL, stay, NULL);
    syscall(SYS_exit, 0);
}

static bool ends_within(pid_t pid, int ms)
{
    while (!proc_ending(pid) && ms--)
        usleep(1000);
    return ms >= 0;
}

int main(void)
{
    CHECK(!proc_ending(getpid()));
    CHECK(proc_ending(0x7fffffff));

    pid_t sleeps = fork();
    if (sleeps == 0)
        stay(NULL);
    CHECK(!ends_within(sleeps, 20));
    kill(sleeps, SIGKILL);
    CHECK(proc_ending(sleeps)); /* from that moment on, wherever it is on its way */
    siginfo_t info;
    waitid(P_PID, (id_t)sleeps, &info, WEXITED | WNOWAIT);
    CHECK(proc_ending(sleeps)); /* a zombie */
    waitpid(sleeps, NULL, 0);
    CHECK(proc_ending(sleeps));

    pid_t leaves = fork();
    if (leaves == 0)
        leave_one();
    CHECK(ends_within(leaves, 10000));
    kill(leaves, SIGKILL);
    waitpid(leaves, NULL, 0);
    return 0;
}
