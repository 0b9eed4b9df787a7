#include "fs/proc/procfs.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define STATUS_MAX 8192

bool proc_stat_parse(const char *text, struct proc_stat *out)
{
    struct proc_stat s = {.processor = -1};

    /* the last bracket: the name before it is the process's own choice */
    const char *p = strrchr(text, ')');
    if (!p || p[1] != ' ')
        return false;
    int n = sscanf(p + 2,
                   "%c %d %*d %d %*d %*d %u %*u %*u %*u %*u %lu %lu %*d %*d %*d %*d %u %*d "
                   "%lu %lu %lu %*u %lu %*u %lu %*u %*u %*u %*u %*u %*u %*u %*u %*u %*d %d",
                   &s.state, &s.ppid, &s.session, &s.flags, &s.utime, &s.stime, &s.threads,
                   &s.start_time, &s.vsize, &s.rss, &s.start_code, &s.start_stack, &s.processor);
    if (n < 11)
        return false;
    *out = s;
    return true;
}

bool proc_lacks_means(int error)
{
    return error == -EMFILE || error == -ENFILE || error == -ENOMEM || error == -EINTR;
}

ssize_t proc_read(pid_t pid, const char *file, char *buf, size_t cap)
{
    char path[64];
    size_t size = 0;

    snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -ESRCH : -errno;
    while (size + 1 < cap) {
        ssize_t n = read(fd, buf + size, cap - 1 - size);
        if (n < 0)
            return -errno;
        size_t asked = cap - 1 - size;
        size += (size_t)n;
        if ((size_t)n < asked) /* these files give all they have at once */
            break;
    }
    buf[size] = 0;
    return (ssize_t)size;
}

ssize_t proc_read_task(pid_t pid, pid_t tid, const char *file, char *buf, size_t cap)
{
    char path[48];

    snprintf(path, sizeof path, "task/%d/%s", (int)tid, file);
    return proc_read(pid, path, buf, cap);
}

int proc_stat_read(pid_t pid, struct proc_stat *out)
{
    char text[1024];

    ssize_t n = proc_read(pid, "stat", text, sizeof text);
    if (n < 0)
        return (int)n;
    return proc_stat_parse(text, out) ? 0 : -ESRCH;
}

ssize_t proc_command(pid_t pid, char *line, size_t cap)
{
    return command_words(line, proc_read(pid, "cmdline", line, cap), cap);
}

ssize_t command_words(char *line, ssize_t n, size_t cap)
{
    if (n <= 0)
        return n;
    bool cut = (size_t)n == cap - 1;
    while (n > 0 && !line[n - 1])
        n--;
    for (ssize_t i = 0; i < n; i++)
        if (!line[i])
            line[i] = ' ';
    for (ssize_t i = 0; cut && i < 3 && i < n; i++)
        line[n - 1 - i] = '.';
    line[n] = 0;
    return n;
}

ssize_t proc_link(pid_t pid, const char *name, char *path, size_t cap)
{
    char link[64];

    snprintf(link, sizeof link, "/proc/%d/%s", pid, name);
    ssize_t n = readlink(link, path, cap);
    return n >= 0 ? n : errno == ENOENT ? -ESRCH : -errno;
}

/* Start times count from boot, suspended time included. */
void proc_started(uint64_t start_time, double *started, double *uptime)
{
    struct timespec boot;

    clock_gettime(CLOCK_BOOTTIME, &boot);
    *uptime = timespec_s(&boot) - (double)start_time / (double)sysconf(_SC_CLK_TCK);
    *started = realtime_s() - *uptime;
}

int proc_sys_number(const char *path)
{
    char text[16] = "";

    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && read(fd, text, sizeof text - 1) > 0 ? atoi(text) : -1;
}

const char *proc_status_field(const char *status, const char *name)
{
    size_t size = strlen(name);

    for (const char *line = status; line; line = strchr(line, '\n')) {
        if (*line == '\n')
            line++;
        if (!strncmp(line, name, size) && line[size] == ':')
            return line + size + 1 + strspn(line + size + 1, "\t ");
    }
    return NULL;
}

uint64_t proc_status_signals(const char *status, const char *name)
{
    const char *field = proc_status_field(status, name);
    return field ? strtoull(field, NULL, 16) : 0;
}

bool proc_has_thread(pid_t pid, pid_t tid)
{
    char path[48];

    snprintf(path, sizeof path, "/proc/%d/task/%d", (int)pid, (int)tid);
    return access(path, F_OK) == 0;
}

pid_t proc_tracer(pid_t tid)
{
    char status[8192];

    if (proc_read(tid, "status", status, sizeof status) <= 0)
        return 0;
    const char *field = proc_status_field(status, "TracerPid");
    return field ? (pid_t)strtol(field, NULL, 10) : 0;
}

bool proc_status_ids(const char *status, const char *name, unsigned ids[4])
{
    const char *p = proc_status_field(status, name);
    return p && sscanf(p, "%u %u %u %u", &ids[0], &ids[1], &ids[2], &ids[3]) == 4;
}

ssize_t proc_status_groups(const char *status, gid_t *groups, size_t max)
{
    const char *p = proc_status_field(status, "Groups");
    size_t n = 0;
    char *end;

    if (!p)
        return -ENOENT;
    while (*p >= '0' && *p <= '9') {
        if (n == max)
            return -E2BIG;
        groups[n++] = (gid_t)strtoul(p, &end, 10);
        p = end + strspn(end, " ");
    }
    return *p == '\n' ? (ssize_t)n : -E2BIG;
}

bool proc_ending(pid_t pid)
{
    char status[STATUS_MAX];
    struct proc_stat stat;

    /* in this order: what takes the signal from those that wait then says so in its flags */
    ssize_t n = proc_read(pid, "status", status, sizeof status);
    if (n < 0)
        return !proc_lacks_means((int)n);
    if (proc_status_signals(status, "SigPnd") >> (SIGKILL - 1) & 1)
        return true;
    int r = proc_stat_read(pid, &stat);
    return r < 0 ? !proc_lacks_means(r) : stat.flags & (PROC_EXITING | PROC_SIGNALED);
}

int proc_statm_open(pid_t pid)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 ? fd : errno == ENOENT ? -ESRCH : -errno;
}

/* size resident shared text lib data dt */
int proc_statm_read(int fd, struct proc_statm *out)
{
    struct proc_statm s;
    char text[128], *end;

    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    if (n <= 0)
        return n ? -errno : -ESRCH;
    text[n] = 0;
    s.size = strtoull(text, &end, 10);
    strtoull(end, &end, 10);
    strtoull(end, &end, 10);
    s.text = strtoull(end, &end, 10);
    if (*end != ' ')
        return -ESRCH;
    *out = s;
    return 0;
}

bool descriptor_spare(int fd)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_NOFILE, &limit) < 0 || (rlim_t)fd + DESCRIPTORS_LEFT <= limit.rlim_cur;
}

int proc_each_task(pid_t pid, int (*each)(void *arg, int tasks, pid_t tid), void *arg)
{
    struct dirent *entry;
    char path[32];
    unsigned tid;
    int r = 0;

    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    _cleanup_closedir_ DIR *dir = opendir(path);
    if (!dir)
        return errno == ENOENT ? -ESRCH : -errno;
    while (r == 0 && (entry = readdir(dir)))
        if (number_parse(entry->d_name, &tid))
            r = each(arg, dirfd(dir), (pid_t)tid);
    return r;
}

bool number_parse(const char *s, unsigned *out)
{
    unsigned long value = 0;

    if (!*s || (s[0] == '0' && s[1]))
        return false;
    for (; *s; s++) {
        if (*s < '0' || *s > '9')
            return false;
        value = value * 10 + (unsigned)(*s - '0');
        if (value > INT_MAX)
            return false;
    }
    *out = (unsigned)value;
    return true;
}
