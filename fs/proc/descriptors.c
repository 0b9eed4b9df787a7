#include "fs/proc/descriptors.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/base/array.h"
#include "fs/proc/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define FDINFO_MAX 65536 /* bytes */
#define LOOK_EVERY 256   /* descriptors, at the time that they took */

/* What was found last. Of all processes: it is the same whoever asks. */
static struct {
    pthread_mutex_t lock;
    struct descriptors found;
    uint64_t found_ns; /* CLOCK_MONOTONIC; 0: never */
} last = {.lock = PTHREAD_MUTEX_INITIALIZER};

void descriptor_parse(const char *link, struct descriptor *out)
{
    out->kind = DESCRIPTOR_OTHER;
    out->inode = 0;
    if (sscanf(link, "pipe:[%lu]", &out->inode) == 1)
        out->kind = DESCRIPTOR_PIPE;
    else if (sscanf(link, "socket:[%lu]", &out->inode) == 1)
        out->kind = DESCRIPTOR_SOCKET;
}

/* ---- all of them ---- */

static int by_inode(const void *a, const void *b)
{
    const struct descriptor *x = a, *y = b;

    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    if (x->inode != y->inode)
        return x->inode < y->inode ? -1 : 1;
    if (x->pid != y->pid)
        return x->pid < y->pid ? -1 : 1;
    return x->fd < y->fd ? -1 : x->fd > y->fd;
}

struct looking {
    struct descriptors found;
    size_t alloc;
    uint64_t until_ns; /* CLOCK_THREAD_CPUTIME_ID */
};

static bool is_too_long(const struct looking *looking)
{
    return thread_cpu_ns() > looking->until_ns;
}

static int look_at_process(struct looking *looking, pid_t pid)
{
    struct descriptors *found = &looking->found;
    struct dirent *entry;
    char path[32], link[64];
    unsigned fd;
    size_t looked = 0;

    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    _cleanup_closedir_ DIR *dir = opendir(path);
    if (!dir) {
        found->cut |= errno != ENOENT && errno != ESRCH;
        return 0;
    }
    while ((entry = readdir(dir))) {
        struct descriptor descriptor = {.pid = pid};
        if (!number_parse(entry->d_name, &fd))
            continue;
        ssize_t n = readlinkat(dirfd(dir), entry->d_name, link, sizeof link - 1);
        if (n < 0)
            continue;
        link[n] = 0;
        descriptor.fd = (int)fd;
        descriptor_parse(link, &descriptor);
        if (found->n == DESCRIPTORS_MAX || (looked++ % LOOK_EVERY == 0 && is_too_long(looking))) {
            found->cut = true;
            return 0;
        }
        if (descriptor.kind == DESCRIPTOR_OTHER)
            continue;
        if (ARRAY_GROW(found->items, looking->alloc, found->n + 1) < 0)
            return -ENOMEM;
        found->items[found->n++] = descriptor;
    }
    return 0;
}

static int look(struct descriptors *out)
{
    struct looking looking = {.until_ns = thread_cpu_ns() + DESCRIPTORS_COST_NS};
    struct dirent *entry;
    unsigned pid;
    int r = 0;

    _cleanup_closedir_ DIR *dir = opendir("/proc");
    if (!dir)
        return -errno;
    while (r == 0 && !is_too_long(&looking) && (entry = readdir(dir)))
        if (number_parse(entry->d_name, &pid))
            r = look_at_process(&looking, (pid_t)pid);
    looking.found.cut |= is_too_long(&looking);
    if (r < 0) {
        descriptors_deinit(&looking.found);
        return r;
    }
    if (looking.found.n)
        qsort(looking.found.items, looking.found.n, sizeof *looking.found.items, by_inode);
    *out = looking.found;
    return 0;
}

int descriptors_read(uint64_t age_ns, struct descriptors *out)
{
    struct descriptors found;

    _guard_mutex_(&last.lock);
    bool old = last.found_ns && monotonic_ns() - last.found_ns < age_ns;
    if (!old) {
        int r = look(&found);
        if (r < 0)
            return r;
        descriptors_deinit(&last.found);
        last.found = found;
        last.found_ns = monotonic_ns();
    }
    struct descriptor *items = malloc((last.found.n + 1) * sizeof *items);
    if (!items)
        return -ENOMEM;
    if (last.found.n)
        memcpy(items, last.found.items, last.found.n * sizeof *items);
    *out =
        (struct descriptors){.items = items, .n = last.found.n, .cut = last.found.cut, .old = old};
    return 0;
}

void descriptors_deinit(struct descriptors *descriptors)
{
    free(descriptors->items);
    *descriptors = (struct descriptors){0};
}

const struct descriptor *descriptors_find(const struct descriptors *descriptors,
                                          enum descriptor_kind kind, uint64_t inode, size_t *n)
{
    const struct descriptor key = {.inode = inode, .kind = kind, .pid = 0, .fd = -1};
    size_t low = LOWER_BOUND(descriptors->n, i, by_inode(&descriptors->items[i], &key) < 0);

    for (*n = 0; low + *n < descriptors->n; (*n)++)
        if (descriptors->items[low + *n].inode != inode ||
            descriptors->items[low + *n].kind != kind)
            break;
    return *n ? &descriptors->items[low] : NULL;
}

/* ---- one of them ---- */

int descriptor_mode(pid_t pid, int fd, bool *reads, bool *writes)
{
    struct stat st;
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd);
    if (lstat(path, &st) < 0)
        return errno == ENOENT ? -ESRCH : -errno;
    *reads = st.st_mode & S_IRUSR;
    *writes = st.st_mode & S_IWUSR;
    return 0;
}

ssize_t descriptor_link(pid_t pid, int fd, char *path, size_t cap)
{
    char name[32];

    snprintf(name, sizeof name, "fd/%d", fd);
    ssize_t n = proc_link(pid, name, path, cap - 1);
    if (n >= 0)
        path[n] = 0;
    return n;
}

int64_t descriptor_number(pid_t pid, int fd, const char *name)
{
    char file[32], text[4096];

    snprintf(file, sizeof file, "fdinfo/%d", fd);
    if (proc_read(pid, file, text, sizeof text) < 0)
        return -1;
    const char *value = proc_status_field(text, name);
    return value ? strtoll(value, NULL, 10) : -1;
}

/* "tfd:        5 events:       19 data: ..." */
ssize_t descriptor_epoll(pid_t pid, int fd, int *fds, size_t max)
{
    _cleanup_free_ char *text = malloc(FDINFO_MAX);
    char file[32];
    size_t n = 0;

    snprintf(file, sizeof file, "fdinfo/%d", fd);
    ssize_t size = text ? proc_read(pid, file, text, FDINFO_MAX) : -ENOMEM;
    if (size < 0)
        return size;
    for (const char *at = text; n < max && (at = strstr(at, "tfd:")); at += strlen("tfd:"))
        fds[n++] = atoi(at + strlen("tfd:"));
    return (ssize_t)n;
}
