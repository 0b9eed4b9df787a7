#include "fs/inject/library_file.h"

#include "agent/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/proc/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

#define STATUS_MAX 8192
/* pid namespaces above one another, kernel/pid_namespace.c, and its own */
#define NAMESPACES_MAX 33

/* Where a program may usually write. */
static const char *const directories[] = {"tmp", "var/tmp", "dev/shm", "run", "."};

/* The root directory of a process. */
static int open_root(pid_t pid)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/root", (int)pid);
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 ? fd : -errno;
}

/* Opens below a root that belongs to somebody else: its links lead nowhere out of it. */
static int open_below(int root, const char *path, uint64_t flags)
{
    struct open_how how = {.flags = flags | O_CLOEXEC,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
    return fd >= 0 ? fd : -errno;
}

/* Whether a stat file is that of the process that began at start_time. */
static bool is_stat_of(int root, long number, uint64_t start_time)
{
    char path[48], text[1024];
    struct proc_stat stat;

    snprintf(path, sizeof path, "proc/%ld/stat", number);
    _cleanup_close_ int fd = open_below(root, path, O_RDONLY | O_NONBLOCK);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof text - 1);
    if (n <= 0)
        return false;
    text[n] = 0;
    return proc_stat_parse(text, &stat) && stat.start_time == start_time;
}

bool library_file_needless(pid_t pid, uint64_t start_time)
{
    char status[STATUS_MAX];

    _cleanup_close_ int root = open_root(pid);
    if (root < 0 || proc_read(pid, "status", status, sizeof status) <= 0)
        return false;
    const char *field = proc_status_field(status, "NSpid");
    for (int i = 0; field && i < NAMESPACES_MAX; i++) {
        char *end;
        long number = strtol(field, &end, 10);
        if (end == field || is_stat_of(root, number, start_time))
            return end != field;
        field = *end == '\t' ? end : NULL;
    }
    return false;
}

/* The user and group that the process's file accesses are made as: the fourth of each line. */
static void owner_of(pid_t pid, uid_t *uid, gid_t *gid)
{
    char status[STATUS_MAX];
    unsigned u = 0, g = 0;

    *uid = geteuid();
    *gid = getegid();
    if (proc_read(pid, "status", status, sizeof status) <= 0)
        return;
    const char *users = proc_status_field(status, "Uid"),
               *groups = proc_status_field(status, "Gid");
    if (users && groups && sscanf(users, "%*u %*u %*u %u", &u) == 1 &&
        sscanf(groups, "%*u %*u %*u %u", &g) == 1) {
        *uid = u;
        *gid = g;
    }
}

static int write_all(int fd, const char *data, size_t size)
{
    while (size) {
        ssize_t n = write(fd, data, size);
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        data += n;
        size -= (size_t)n;
    }
    return 0;
}

static int write_file(pid_t pid, const struct library_file *file, const void *data, size_t size)
{
    struct statvfs fs;
    uid_t uid;
    gid_t gid;

    if (fstatvfs(file->directory, &fs) < 0 || fs.f_flag & (ST_NOEXEC | ST_RDONLY))
        return -EACCES;
    _cleanup_close_ int fd = openat(file->directory, file->name,
                                    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0500);
    if (fd < 0)
        return -errno;
    owner_of(pid, &uid, &gid);
    int r = write_all(fd, data, size);
    if (r == 0 && (uid != geteuid() || gid != getegid()) && fchown(fd, uid, gid) < 0)
        r = -errno;
    return r;
}

int library_file_create(pid_t pid, const void *data, size_t size, struct library_file *out,
                        struct text *why)
{
    struct library_file file = {.directory = -1};
    uint64_t random[2];
    int r = -EACCES;

    _cleanup_close_ int root = open_root(pid);
    if (root < 0)
        return root;
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return -EIO;
    snprintf(file.name, sizeof file.name, ".probe-agent-%08x%08x.so", (unsigned)random[0],
             (unsigned)random[1]);
    for (size_t i = 0; i < ARRAY_SIZE(directories) && r < 0; i++) {
        file.directory = open_below(root, directories[i], O_RDONLY | O_DIRECTORY);
        if (file.directory < 0)
            continue;
        snprintf(file.path, sizeof file.path, "/%s/%s", directories[i], file.name);
        r = write_file(pid, &file, data, size);
        if (r < 0)
            library_file_remove(&file);
    }
    if (r < 0) {
        text_puts(why,
                  "it has no /proc, and no directory that the library could be put into (/tmp, "
                  "/var/tmp, /dev/shm, /run or /, not mounted noexec)");
        return -EACCES;
    }
    *out = file;
    return 0;
}

void library_file_remove(struct library_file *file)
{
    if (file->directory < 0)
        return;
    unlinkat(file->directory, file->name, 0);
    close(file->directory);
    file->directory = -1;
}
