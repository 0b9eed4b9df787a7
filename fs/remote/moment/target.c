#include "fs/remote/moment/target.h"

#include "agent/base/cleanup.h"
#include "fs/proc/lwp.h"
#include "fs/proc/procfs.h"
#include "fs/remote/frames/code.h"
#include "fs/remote/frames/names.h"
#include "fs/remote/memory/core.h"
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
    int r = target->core ? core_maps(target->core, &target->maps)
                         : maps_read(target->pid, &target->maps);
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

static struct target *new_target(pid_t pid)
{
    struct target *target = calloc(1, sizeof *target);
    if (!target)
        return NULL;
    target->pid = pid;
    target->pidfd = -1;
    target->memory.pid = pid;
    atomic_init(&target->refs, 1);
    pthread_mutex_init(&target->tracing, NULL);
    pthread_mutex_init(&target->lock, NULL);
    return target;
}

static void free_parts(struct target *target)
{
    native_free(target->native);
    names_free(target->names);
    code_cache_free(target->codes);
    view_free(target->view);
    maps_deinit(&target->maps);
    target->native = NULL;
    target->names = NULL;
    target->codes = NULL;
    target->view = NULL;
}

int target_find(struct target *target)
{
    if (atomic_load(&target->found))
        return 0;
    _guard_mutex_(&target->lock);
    if (atomic_load(&target->found))
        return 0;
    int r = find_runtime(target);
    if (r == 0)
        r = view_new(&target->memory, &target->view);
    if (r == 0)
        r = code_cache_new(&target->codes);
    if (r == 0)
        r = names_new(&target->memory, &target->names);
    if (r == 0)
        r = native_new(&target->memory, &target->native);
    if (r < 0)
        free_parts(target);
    atomic_store(&target->found, r == 0);
    return r;
}

int target_hold(pid_t pid, struct target **out)
{
    struct target *target = new_target(pid);
    if (!target)
        return -ENOMEM;
    int r = read_start(target);
    if (r == 0)
        r = open_pidfd(pid, &target->pidfd);
    target->foreign = lwp_foreign(pid);
    if (r < 0) {
        target_unref(target);
        return r;
    }
    *out = target;
    return 0;
}

/* The target is freed if nothing is found. */
static int find(struct target *target, struct target **out)
{
    int r = target_find(target);

    if (r < 0)
        target_unref(target);
    else
        *out = target;
    return r;
}

int target_open(pid_t pid, struct target **out)
{
    struct target *target;

    int r = target_hold(pid, &target);
    return r == 0 ? find(target, out) : r;
}

int target_hold_core(struct core *core, unsigned number, struct target **out)
{
    struct target *target = new_target(TARGET_CORE_PID + (pid_t)number);
    if (!target) {
        core_free(core);
        return -ENOMEM;
    }
    target->memory.core = target->core = core;
    *out = target;
    return 0;
}

int target_open_core(struct core *core, unsigned number, struct target **out)
{
    struct target *target;

    int r = target_hold_core(core, number, &target);
    return r == 0 ? find(target, out) : r;
}

pid_t target_number(const struct target *target)
{
    return target->core ? target->core->pid : target->pid;
}

int target_lwps(const struct target *target, enum lwp_detail detail, struct lwp_list *out)
{
    return target->core ? core_lwps(target->core, out) : lwp_list_read(target->pid, detail, out);
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
    imports_forget(target);
    walk_deinit(&target->walk);
    free_parts(target);
    core_free(target->core);
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

    if (target->core)
        return true;
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

    if (target->core)
        return -ETIMEDOUT;
    if (!target_alive(target) || proc_ending(target->pid))
        return -ESRCH;
    if (!atomic_load(&target->found)) /* it is none of ours to read */
        return target_same_program(target) ? -ETIMEDOUT : -ESRCH;
    if (memory_read(&target->memory, target->runtime.addr, &word, sizeof word) < 0)
        return -ESRCH;
    return -ETIMEDOUT;
}

int target_refresh_maps(struct target *target)
{
    struct maps maps;

    if (target->core)
        return 0;
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
