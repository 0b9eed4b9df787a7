#include "fs/owner/child.h"

#include "agent/base/clock.h"
#include "fs/proc/may_hang.h"
#include "fs/proc/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#define STOPPED_LOOKS 3

int child_descriptor(int fd)
{
    int high = fcntl(fd, F_DUPFD_CLOEXEC, CHILD_SHARED + 1);
    int error = errno;

    close(fd);
    return high < 0 ? -error : high;
}

bool child_stays_stopped(pid_t tid, unsigned *looks)
{
    struct proc_stat stat;
    bool stopped = proc_stat_read(tid, &stat) == 0 && (stat.state == 'T' || stat.state == 't');

    *looks = stopped ? *looks + 1 : 0;
    return *looks == STOPPED_LOOKS;
}

int child_await(int fd, pid_t pid, uint64_t until)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    unsigned stopped = 0;

    while (poll(&poll_fd, 1, MAY_HANG_LOOK_MS) <= 0)
        if (child_stays_stopped(pid, &stopped) || monotonic_ns() > until)
            return -ETIME;
    return 0;
}

static int spawn(const char *name, int control, int shared, pid_t *out)
{
    char *const argv[] = {(char *)name, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none, all;

    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setpgroup(&attr, 0); /* no Ctrl-C of the daemon's terminal */
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                        POSIX_SPAWN_SETPGROUP);
    posix_spawn_file_actions_adddup2(&actions, control, CHILD_CONTROL);
    if (shared >= 0)
        posix_spawn_file_actions_adddup2(&actions, shared, CHILD_SHARED);
    int r = -posix_spawn(out, "/proc/self/exe", &actions, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    return r;
}

int child_start(const char *name, int control, int shared, pid_t *out)
{
    int high = child_descriptor(control);
    int r = high < 0 ? high : spawn(name, high, shared, out);

    if (high >= 0)
        close(high);
    return r;
}
