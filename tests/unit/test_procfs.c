#include "fs/proc/procfs.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (1u << 20)

static void test_stat(void)
{
    struct proc_stat s;

    /* a name with all that could lead astray */
    CHECK(proc_stat_parse(
        "7 (a) S 1 (b c) R 5 7 8 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 12 0 777 "
        "1048576 99 18446744073709551615 4096 8192 140000 0 0 0 0 0 0 0 0 0 17 63 0 0",
        &s));
    CHECK_INT(s.processor, 63);
    CHECK_INT(s.state, 'R');
    CHECK_INT(s.ppid, 5);
    CHECK_INT(s.session, 8);
    CHECK_INT(s.flags, 4194560);
    CHECK_INT(s.threads, 12);
    CHECK_INT(s.start_time, 777);
    CHECK_INT(s.vsize, MIB);
    CHECK_INT(s.rss, 99);
    CHECK_INT(s.start_code, 4096);
    CHECK_INT(s.start_stack, 140000);
    CHECK(proc_stat_parse("7 (a) S 5 7 7 0 -1 64 1 2 3 4 5 6 7 8 20 0 12 0 777 1 99 1 2 3 4", &s));
    CHECK_INT(s.processor, -1);
    CHECK(!proc_stat_parse("7 (a) S 1", &s));
    CHECK(!proc_stat_parse("7 a", &s));
    CHECK(!proc_stat_parse("", &s));

    CHECK_INT(proc_stat_read(getpid(), &s), 0);
    CHECK_INT(s.ppid, getppid());
    CHECK_INT(proc_stat_read(0x7fffffff, &s), -ESRCH);

    struct proc_statm m;
    int fd = proc_statm_open(getpid());
    CHECK(fd >= 0);
    CHECK_INT(proc_statm_read(fd, &m), 0);
    CHECK(m.size && m.text);
    close(fd);
    CHECK_INT(proc_statm_open(0x7fffffff), -ESRCH);
}

static void test_status(void)
{
    unsigned ids[4];
    gid_t groups[2];

    CHECK(proc_status_ids("Name:\tUid:\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\n", "Gid", ids));
    CHECK_INT(ids[0] * 1000 + ids[1] * 100 + ids[2] * 10 + ids[3], 5678);
    CHECK(proc_status_ids("Name:\tUid:\nUid:\t1\t2\t3\t4\n", "Uid", ids));
    CHECK_INT(ids[0] * 1000 + ids[1] * 100 + ids[2] * 10 + ids[3], 1234);
    CHECK(!proc_status_ids("Name:\tx\nUid:\t1\t2\n", "Uid", ids));
    CHECK(!proc_status_ids("Name:\tx\n", "Uid", ids));

    CHECK_INT(proc_status_groups("Name:\tGroups:\nGroups:\t4 100 \nX:\t1\n", groups, 2), 2);
    CHECK(groups[0] == 4 && groups[1] == 100);
    CHECK_INT(proc_status_groups("Groups:\t \nX:\t1\n", groups, 2), 0);
    CHECK_INT(proc_status_groups("Groups:\t1 2 3 \n", groups, 2), -E2BIG);
    CHECK_INT(proc_status_groups("Groups:\t1 2", groups, 2), -E2BIG); /* maybe 23 */
    CHECK_INT(proc_status_groups("Name:\tx\n", groups, 2), -ENOENT);
}

/* One that ends with the test, which is waited for as long as anybody has its output. */
static pid_t start(void)
{
    pid_t pid = fork();
    if (pid == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return pid;
}

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

static void test_ending(void)
{
    CHECK(!proc_ending(getpid()));
    CHECK(proc_ending(0x7fffffff));

    pid_t sleeps = start();
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

    pid_t leaves = start();
    if (leaves == 0)
        leave_one();
    CHECK(ends_within(leaves, 10000));
    kill(leaves, SIGKILL);
    waitpid(leaves, NULL, 0);
}

static void test_command(void)
{
    const char *const arguments[] = {"sh", "-c", "read x", "", "two words", "", NULL};
    char line[64], path[64];
    double started, uptime;
    struct proc_stat stat;
    int fds[2];

    CHECK(pipe(fds) == 0);
    pid_t pid = start();
    if (pid == 0) {
        dup2(fds[0], 0);
        execv("/bin/sh", (char *const *)arguments);
        _exit(127);
    }
    for (int i = 0; i < 10000; i++) {
        ssize_t n = proc_command(pid, line, sizeof line);
        CHECK(n >= 0); /* none while a program is being started */
        if (n > 0 && !strncmp(line, "sh ", 3))
            break;
        usleep(1000);
    }
    CHECK_STR(line, "sh -c read x  two words"); /* the last one is empty */
    CHECK_INT(proc_command(pid, line, 11), 10);
    CHECK_STR(line, "sh -c r...");
    CHECK_INT(proc_command(pid, line, 3), 2);
    CHECK_STR(line, "..");
    CHECK_INT(proc_link(pid, "fd/0", path, 5), 5);
    CHECK(!memcmp(path, "pipe:", 5));
    CHECK_INT(proc_link(pid, "fd/99", path, sizeof path), -ESRCH);

    CHECK_INT(proc_stat_read(pid, &stat), 0);
    time_t before = time(NULL);
    proc_started(stat.start_time, &started, &uptime);
    CHECK(uptime >= 0 && uptime < 60);
    CHECK(started + uptime > (double)before - 1 && started + uptime < (double)time(NULL) + 2);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    CHECK_INT(proc_command(pid, line, sizeof line), -ESRCH);
}

int main(void)
{
    test_stat();
    test_status();
    test_ending();
    test_command();
    return 0;
}
