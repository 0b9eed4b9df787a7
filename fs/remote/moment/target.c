#include "fs/remote/moment/target.h"

#include "agent/base/cleanup.h"
#include "fs/proc/lwp.h"
#include "fs/proc/procfs.h"
#include "fs/remote/frames/code.h"
#include "fs/remote/frames/names.h"
#include "fs/remote/memory/view.h"
#include "fs/remote/moment/caches.h"
#include "fs/remote/moment/imports.h"
#include "fs/remote/native/native.h"
#include "fs/remote/objects/version.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

int process_start_time(pid_t pid, uint64_t *out)
{
    char path[64], buf[1024];

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -ESRCH : -errno;
    ssize_t n = read(fd, buf, sizeof buf - 1);
    if (n < 0)
        return -errno;
    buf[n] = 0;

    /* "pid (comm) state ppid ...": comm may hold anything, so count from its last parenthesis */
    char *p = strrchr(buf, ')');
    for (int field = 2; p && field < 22; field++) {
        p = strchr(p + 1, ' ');
    }
    if (!p)
        return -EIO;
    *out = strtoull(p + 1, NULL, 10);
    return 0;
}

static int read_start(struct target *target)
{
    int r = process_start_time(target->pid, &target->start_time);
    if (r < 0)
        return r;
    target->auxv_size = proc_read(target->pid, "auxv", target->auxv, sizeof target->auxv);
    return target->auxv_size < 0 ? (int)target->auxv_size : 0;
}

static int find_runtime(struct target *target)
{
    int r = maps_read(target->pid, &target->maps);
    if (r < 0)
        return r;
    return runtime_find(&target->memory, &target->maps, &target->runtime);
}

/* A pidfd for good, unless that leaves too few descriptors for reading. Without one the start time
 * alone tells a process from its successor. -ESRCH. */
static int open_pidfd(pid_t pid, int *out)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0)
        return errno == ESRCH ? -ESRCH : 0;
    if (descriptor_spare(fd))
        *out = fd;
    else
        close(fd);
    return 0;
}

int target_open(pid_t pid, struct target **out)
{
    struct target *target = calloc(1, sizeof *target);
    if (!target)
        return -ENOMEM;
    target->pid = pid;
    target->pidfd = -1;
    target->memory.pid = pid;
    atomic_init(&target->refs, 1);
    pthread_mutex_init(&target->tracing, NULL);
    pthread_mutex_init(&target->lock, NULL);

    int r = read_start(target);
    if (r == 0)
        r = open_pidfd(pid, &target->pidfd);
    if (r == 0)
        r = find_runtime(target);
    if (r == 0)
        r = view_new(&target->memory, &target->view);
    if (r == 0)
        r = code_cache_new(&target->codes);
    if (r == 0)
        r = names_new(&target->memory, &target->names);
    if (r == 0)
        r = native_new(&target->memory, &target->native);
    target->foreign = lwp_foreign(pid);
    if (r < 0) {
        target_unref(target);
        return r;
    }
    *out = target;
    return 0;
}

struct target *target_ref(struct target *target)
{
    atomic_fetch_add(&target->refs, 1);
    return target;
}

void target_unref(struct target *target)
{
    if (!target || atomic_fetch_sub(&target->refs, 1) > 1)
        return;
    for (int i = 0; i < TARGET_KEEPERS; i++) {
        struct target_kept *kept = atomic_load(&target->kept[i]);
        if (kept)
            kept->free(kept);
    }
    if (target->pidfd >= 0)
        close(target->pidfd);
    caches_leave(target);
    native_free(target->native);
    names_free(target->names);
    code_cache_free(target->codes);
    imports_forget(target);
    walk_deinit(&target->walk);
    view_free(target->view);
    maps_deinit(&target->maps);
    pthread_mutex_destroy(&target->lock);
    pthread_mutex_destroy(&target->tracing);
    free(target);
}

struct target_kept *target_keep(struct target *target, enum target_keeper keeper,
                                struct target_kept *kept)
{
    struct target_kept *none = NULL;

    return atomic_compare_exchange_strong(&target->kept[keeper], &none, kept) ? kept : none;
}

bool target_alive(const struct target *target)
{
    uint64_t start;

    if (target->pidfd >= 0) {
        struct pollfd p = {.fd = target->pidfd, .events = POLLIN};
        return poll(&p, 1, 0) == 0; /* readable once the process has ended, zombie or not */
    }
    return process_start_time(target->pid, &start) == 0 && start == target->start_time;
}

bool target_same_program(const struct target *target)
{
    char auxv[TARGET_AUXV_MAX];

    ssize_t n = proc_read(target->pid, "auxv", auxv, sizeof auxv);
    return n > 0 && n == target->auxv_size && !memcmp(auxv, target->auxv, (size_t)n) &&
           target_alive(target);
}

int target_why_not(const struct target *target)
{
    uint64_t word;

    if (!target_alive(target) || proc_ending(target->pid) ||
        memory_read(&target->memory, target->runtime.addr, &word, sizeof word) < 0)
        return -ESRCH;
    return -ETIMEDOUT;
}

int target_refresh_maps(struct target *target)
{
    struct maps maps;

    int r = maps_read(target->pid, &maps);
    if (r < 0)
        return r;
    maps_deinit(&target->maps);
    target->maps = maps;
    return 0;
}

void target_learn_version(struct target *target)
{
    if (target->runtime.version & 0xffff)
        return;
    uint32_t version = version_read(&target->memory, &target->runtime);
    if (version)
        target->runtime.version = version;
}
