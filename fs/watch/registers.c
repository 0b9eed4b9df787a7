#include "fs/watch/registers.h"

#include "agent/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/proc/lwp.h"
#include "fs/proc/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATUS_MAX 8192
#define AGENT_THREADS "probe-"     /* how their names begin */
#define USER_END 0x7ffffffff000ull /* of addresses of programs with 4 levels of page tables */
/* Fields of stat from its state, the third, to the mask of handled signals, the 34th (proc(5)). */
#define FIELDS_BEFORE_CAUGHT 31

bool watch_possible(uint64_t address, uint32_t length)
{
    return (length == 1 || length == 2 || length == 4 || length == 8) && address % length == 0 &&
           address >= length && address < USER_END;
}

int watch_open_stat(pid_t pid)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", (int)pid, (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 ? fd : errno == ENOENT ? -ESRCH : -errno;
}

bool watch_handled(int stat_fd)
{
    char text[1024];

    ssize_t n = pread(stat_fd, text, sizeof text - 1, 0);
    if (n <= 0)
        return false;
    text[n] = 0;
    const char *p = strrchr(text, ')'); /* what is before it may hold anything */
    for (int i = 0; p && i <= FIELDS_BEFORE_CAUGHT; i++)
        p = strchr(p + 1, ' ');
    return p && strtoull(p, NULL, 10) >> (SIGTRAP - 1) & 1;
}

struct tids {
    pid_t *items;
    size_t n, alloc;
};

static int add_tid(void *arg, int tasks, pid_t tid)
{
    struct tids *tids = arg;
    int r = tids->n < LWP_MAX ? ARRAY_GROW(tids->items, tids->alloc, tids->n + 1) : -E2BIG;

    if (r == 0)
        tids->items[tids->n++] = tid;
    return r;
}

int watch_threads(pid_t pid, pid_t **out, size_t *n)
{
    struct tids tids = {0};

    int r = proc_each_task(pid, add_tid, &tids);
    if (r == 0 && !tids.n)
        r = -ESRCH;
    if (r < 0) {
        free(tids.items);
        return r;
    }
    *out = tids.items;
    *n = tids.n;
    return 0;
}

static bool has_trap(const char *status, const char *mask)
{
    return proc_status_signals(status, mask) >> (SIGTRAP - 1) & 1;
}

bool watch_blocks(pid_t tid)
{
    char status[STATUS_MAX];

    return proc_read(tid, "status", status, sizeof status) > 0 && has_trap(status, "SigBlk");
}

static bool blocks_trap(pid_t tid)
{
    char status[STATUS_MAX];

    if (proc_read(tid, "status", status, sizeof status) <= 0)
        return false;
    const char *name = proc_status_field(status, "Name");
    return has_trap(status, "SigBlk") &&
           !(name && !strncmp(name, AGENT_THREADS, strlen(AGENT_THREADS)));
}

size_t watch_blocking(pid_t pid)
{
    _cleanup_free_ pid_t *tids = NULL;
    size_t n, count = 0;

    if (watch_threads(pid, &tids, &n) < 0)
        return 0;
    for (size_t i = 0; i < n; i++)
        count += blocks_trap(tids[i]);
    return count;
}

pid_t watch_waiting(pid_t pid)
{
    _cleanup_free_ pid_t *tids = NULL;
    char status[STATUS_MAX];
    size_t n;

    if (watch_threads(pid, &tids, &n) < 0)
        return 0;
    for (size_t i = 0; i < n; i++)
        if (proc_read(tids[i], "status", status, sizeof status) > 0 && has_trap(status, "SigPnd") &&
            has_trap(status, "SigBlk"))
            return tids[i];
    return 0;
}
