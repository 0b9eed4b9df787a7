#include "fs/proc/lwp.h"

#include "agent/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/proc/procfs.h"
#include "fs/proc/runs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

static const char *const syscall_names[] = {
#include "syscall_names.h"
};

const char *syscall_name(int number)
{
    if (number < 0 || (size_t)number >= ARRAY_SIZE(syscall_names))
        return NULL;
    return syscall_names[number];
}

/* Reads a small file below a directory; its length, or -errno. */
static ssize_t read_small(int dir, const char *path, char *buf, size_t cap)
{
    _cleanup_close_ int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t n = read(fd, buf, cap - 1);
    if (n < 0)
        return -errno;
    buf[n] = 0;
    return n;
}

/* "tid (comm) S ppid ..." where comm may hold anything: up to the last parenthesis. */
static bool parse_stat(char *text, struct lwp *lwp)
{
    char *open = strchr(text, '('), *close = strrchr(text, ')');

    if (!open || !close || close < open || strlen(close) < 4)
        return false;
    lwp->state = close[2];
    *close = 0;
    snprintf(lwp->comm, sizeof lwp->comm, "%s", open + 1);
    char *p = close + 2;
    for (int field = 3; p && field < 14; field++) {
        p = strchr(p, ' ');
        p = p ? p + 1 : NULL;
    }
    if (!p)
        return false;
    lwp->user_ticks = strtoull(p, &p, 10);
    lwp->system_ticks = strtoull(p, NULL, 10);
    return true;
}

/* What the thread sleeps in, from /proc/PID/task/TID/syscall. */
static void read_syscall(int task, struct lwp *lwp)
{
    char path[48], line[256], *end;

    snprintf(path, sizeof path, "%d/syscall", (int)lwp->tid);
    if (read_small(task, path, line, sizeof line) <= 0)
        return;
    if (*line < '0' || *line > '9') /* "running", or "-1 ..." outside a system call */
        return;
    lwp->syscall = (int)strtol(line, &end, 10);
    blocking_parse(line, &lwp->blocking);
    for (int i = 0; i < LWP_ARGUMENTS; i++)
        lwp->args[i] = strtoull(end, &end, 16);
}

/* 0: not known. */
static uint64_t read_ran(int task, pid_t tid)
{
    char path[48], text[128];
    struct runs runs;

    snprintf(path, sizeof path, "%d/schedstat", (int)tid);
    return read_small(task, path, text, sizeof text) > 0 && runs_parse(text, &runs)
               ? runs_number(&runs)
               : 0;
}

/* -ESRCH: it has ended; or an error of proc_lacks_means(). */
static int read_lwp(int task, pid_t tid, enum lwp_detail detail, struct lwp *lwp)
{
    char path[48], text[1024];

    *lwp = (struct lwp){
        .tid = tid, .inner_tid = tid, .syscall = -1, .blocking = {.number = -1, .fd = -1}};
    snprintf(path, sizeof path, "%d/stat", (int)tid);
    ssize_t n = read_small(task, path, text, sizeof text);
    if (n <= 0 || !parse_stat(text, lwp))
        return proc_lacks_means((int)n) ? (int)n : -ESRCH;
    if (detail >= LWP_RUNS && lwp->state != 'R')
        lwp->ran = read_ran(task, tid);
    if (detail >= LWP_SYSCALLS && lwp->state != 'R')
        read_syscall(task, lwp);
    return 0;
}

/* The last number of the NSpid line of a status file: the innermost pid namespace's. */
static pid_t inner_tid(int task, pid_t tid)
{
    char path[48], text[4096];

    snprintf(path, sizeof path, "%d/status", (int)tid);
    if (read_small(task, path, text, sizeof text) <= 0)
        return tid;
    char *line = strstr(text, "\nNSpid:");
    if (!line)
        return tid;
    char *end = strchrnul(line + 1, '\n');
    *end = 0;
    char *last = strrchr(line + 1, '\t');
    return last ? (pid_t)strtol(last, NULL, 10) : tid;
}

bool lwp_foreign(pid_t pid)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    _cleanup_close_ int task = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return task >= 0 && inner_tid(task, pid) != pid;
}

static int by_tid(const void *a, const void *b)
{
    const struct lwp *x = a, *y = b;
    return x->tid < y->tid ? -1 : x->tid > y->tid;
}

/* A list while it is read. */
struct reading {
    pid_t pid;
    enum lwp_detail detail;
    bool begun, foreign; /* foreign: known once begun */
    struct lwp_list list;
    size_t alloc;
};

/* 1: that is enough. */
static int add(void *arg, int tasks, pid_t tid)
{
    struct reading *reading = arg;
    struct lwp_list *list = &reading->list;

    if (!reading->begun)
        reading->foreign = inner_tid(tasks, reading->pid) != reading->pid;
    reading->begun = true;
    if (list->n == LWP_MAX) {
        list->cut = true;
        return 1;
    }
    if (ARRAY_GROW(list->items, reading->alloc, list->n + 1) < 0)
        return -ENOMEM;
    struct lwp *lwp = &list->items[list->n];
    int r = read_lwp(tasks, tid, reading->detail, lwp);
    if (r < 0)
        return r == -ESRCH ? 0 : r;
    if (reading->foreign)
        lwp->inner_tid = inner_tid(tasks, tid);
    list->n++;
    return 0;
}

int lwp_list_read(pid_t pid, enum lwp_detail detail, struct lwp_list *out)
{
    struct reading reading = {.pid = pid, .detail = detail};

    int r = proc_each_task(pid, add, &reading);
    if (r >= 0 && !reading.list.n)
        r = -ESRCH;
    if (r < 0) {
        lwp_list_deinit(&reading.list);
        return r;
    }
    qsort(reading.list.items, reading.list.n, sizeof *reading.list.items, by_tid);
    *out = reading.list;
    return 0;
}

/* Whether a thread has moved. Where the kernel keeps no times, what it sleeps in must do. */
static bool has_moved(int task, const struct lwp *lwp)
{
    struct lwp now = {.tid = lwp->tid, .syscall = -1};

    if (lwp->ran)
        return read_ran(task, lwp->tid) != lwp->ran;
    read_syscall(task, &now);
    return lwp->syscall < 0 || now.syscall != lwp->syscall ||
           memcmp(now.args, lwp->args, sizeof now.args) != 0;
}

void lwp_list_see_moved(pid_t pid, struct lwp_list *list)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    _cleanup_close_ int task = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < list->n; i++)
        list->items[i].moved = task < 0 || has_moved(task, &list->items[i]);
}

void lwp_list_deinit(struct lwp_list *list)
{
    if (!list)
        return;
    free(list->items);
    *list = (struct lwp_list){0};
}

char lwp_state(pid_t pid, pid_t tid)
{
    char path[64], text[1024];
    struct lwp lwp;

    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", (int)pid, (int)tid);
    if (read_small(AT_FDCWD, path, text, sizeof text) <= 0 || !parse_stat(text, &lwp))
        return 0;
    return lwp.state;
}

struct lwp *lwp_find(const struct lwp_list *list, pid_t tid)
{
    struct lwp key = {.tid = tid};
    return list->n ? bsearch(&key, list->items, list->n, sizeof key, by_tid) : NULL;
}

struct lwp *lwp_find_inner(const struct lwp_list *list, pid_t inner)
{
    struct lwp *lwp = lwp_find(list, inner);

    if (lwp && lwp->inner_tid == inner)
        return lwp;
    for (size_t i = 0; i < list->n; i++)
        if (list->items[i].inner_tid == inner)
            return &list->items[i];
    return NULL;
}
