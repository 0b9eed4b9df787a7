#include "fs/inject/file_user.h"

#include "agent/base/cleanup.h"
#include "fs/base/open_within.h"
#include "fs/base/worker.h"
#include "fs/proc/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/nsfs.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

#define STATUS_MAX 32768 /* bytes: with groups, each of at most 11 digits */

/* ---- who that is ---- */

/* The id of file accesses. *same: all four are that. */
static bool parse_ids(const char *status, const char *name, unsigned *out, bool *same)
{
    unsigned id[4];

    if (!proc_status_ids(status, name, id))
        return false;
    *out = id[3];
    *same = id[0] == id[3] && id[1] == id[3] && id[2] == id[3];
    return true;
}

/* Whether its capabilities, if any, are those over a user namespace that its user made, and so
 * those of that user anyway (user_namespaces(7)). */
static bool capable_as_user(pid_t pid, const char *status, uid_t uid)
{
    const char *permitted = proc_status_field(status, "CapPrm");
    char path[64];
    uid_t maker;

    if (permitted && !strtoull(permitted, NULL, 16))
        return true;
    snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && ioctl(fd, NS_GET_OWNER_UID, &maker) == 0 && maker == uid;
}

/* Whether other processes of its user may debug it: else its status file belongs to root
 * (task_dump_owner(), the kernel's fs/proc/base.c). */
static bool is_dumpable(pid_t pid, uid_t uid)
{
    struct stat st;
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    return stat(path, &st) == 0 && st.st_uid == uid;
}

int file_user_read(pid_t pid, struct file_user *out, struct text *why)
{
    _cleanup_free_ char *status = malloc(STATUS_MAX);
    bool same_uids, same_gids;

    if (!status)
        return -ENOMEM;
    ssize_t n = proc_read(pid, "status", status, STATUS_MAX);
    if (n < 0)
        return (int)n;
    if (!parse_ids(status, "Uid", &out->uid, &same_uids) ||
        !parse_ids(status, "Gid", &out->gid, &same_gids))
        return -ESRCH;
    n = proc_status_groups(status, out->groups, FILE_USER_GROUPS_MAX);
    if (n < 0) {
        text_printf(why, "it is in more than %d groups", FILE_USER_GROUPS_MAX);
        return -EPERM;
    }
    out->ngroups = (size_t)n;
    if (out->uid == 0 || (same_uids && same_gids && capable_as_user(pid, status, out->uid) &&
                          is_dumpable(pid, out->uid)))
        return 0;
    text_puts(why, "it has more rights than other processes of its user (other ids, capabilities, "
                   "or it isn't dumpable), and these could change a file that it is given");
    return -EPERM;
}

/* ---- being it ---- */

/* One piece of work, on its way to the thread and back. */
struct work {
    const struct file_user *owner;
    int (*run)(void *arg);
    void *arg;
    int result;
};

/* Whether all groups that this process has are the owner's, too: then others needn't be given up,
 * as a process that has taken on such rights (owner/class.h) can't. */
static bool has_no_more_groups(const struct file_user *owner)
{
    gid_t groups[FILE_USER_GROUPS_MAX];

    int n = getgroups(FILE_USER_GROUPS_MAX, groups);
    for (int i = 0; i < n; i++) {
        bool found = false;
        for (size_t k = 0; k < owner->ngroups && !found; k++)
            found = owner->groups[k] == groups[i];
        if (!found)
            return false;
    }
    return n >= 0;
}

/* Takes the ids and groups on, for the calling thread alone: the C library's functions would change
 * those of all. */
static int become(const struct file_user *owner)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};

    /* who isn't root has the groups of its own user already */
    if (syscall(SYS_setgroups, owner->ngroups, owner->groups) < 0 && geteuid() == 0 &&
        !has_no_more_groups(owner))
        return -EPERM;
    setfsgid(owner->gid);
    setfsuid(owner->uid);
    if ((gid_t)setfsgid((gid_t)-1) != owner->gid || (uid_t)setfsuid((uid_t)-1) != owner->uid)
        return -EPERM;
    return syscall(SYS_capset, &head, none) < 0 ? -errno : 0;
}

static void *work_main(void *arg)
{
    struct work *work = arg;

    work->result = become(work->owner);
    if (work->result == 0)
        work->result = work->run(work->arg);
    return NULL;
}

int file_user_run(const struct file_user *owner, int (*run)(void *arg), void *arg)
{
    struct work work = {.owner = owner, .run = run, .arg = arg};
    pthread_t thread;

    int dumpable = prctl(PR_GET_DUMPABLE); /* lost by taking other ids (prctl(2)) */
    int r = worker_start(work_main, &work, "probefs-files", &thread);
    if (r < 0)
        return r;
    pthread_join(thread, NULL);
    if (dumpable == 1)
        prctl(PR_SET_DUMPABLE, 1);
    return work.result;
}

/* ---- where ---- */

int root_open(pid_t pid)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/root", (int)pid);
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 ? fd : errno == ENOENT ? -ESRCH : -errno;
}

int open_beneath(int directory, const char *path, int flags, mode_t mode, bool one_mount)
{
    struct open_how how = {
        .flags = (unsigned)flags | O_CLOEXEC,
        .mode = mode,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS |
                   (one_mount ? RESOLVE_NO_XDEV : 0),
    };

    int fd = open_within(directory, path, &how);
    return fd >= 0 ? fd : -errno;
}

int write_whole(int fd, const void *data, size_t size)
{
    const char *p = data;

    while (size) {
        ssize_t n = write(fd, p, size);
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        p += n;
        size -= (size_t)n;
    }
    return 0;
}

/* ---- a library ---- */

struct putting {
    const struct library_places *places;
    int root;
    size_t index;
};

static int put(void *arg)
{
    const struct putting *putting = arg;
    const struct library_places *places = putting->places;
    const char *path = places->paths[putting->index] + 1;
    struct statvfs fs;

    _cleanup_close_ int fd =
        open_beneath(putting->root, *path ? path : ".", O_RDONLY | O_DIRECTORY, 0, false);
    if (fd < 0)
        return fd;
    if (fstatvfs(fd, &fs) < 0)
        return -errno;
    if (fs.f_flag & ST_RDONLY)
        return -EROFS;
    if (fs.f_flag & ST_NOEXEC)
        return -ENOEXEC;
    return places->put(places->arg, fd, putting->index);
}

static const char *words_of(int error)
{
    switch (error) {
    case -ENOENT: return "is missing";
    case -ELOOP: return "is a symbolic link";
    case -EROFS: return "is read-only";
    case -ENOEXEC: return "is mounted noexec";
    case -ENOSPC: return "is full";
    case -EDQUOT: return "is full for its user (disk quota)";
    }
    return strerror(-error);
}

int library_put(const struct file_user *owner, int root, const struct library_places *places,
                struct text *why)
{
    struct putting putting = {.places = places, .root = root};
    bool full = false;

    text_puts(why, "no directory of the process can hold the library: ");
    for (size_t i = 0; i < places->n; i++) {
        putting.index = i;
        int r = file_user_run(owner, put, &putting);
        if (r == 0 || r == -ENOMEM || r == -EAGAIN || r == -EMFILE) {
            text_clear(why);
            return r;
        }
        full = full || r == -ENOSPC || r == -EDQUOT;
        text_printf(why, "%s%s %s", i ? ", " : "", places->paths[i], words_of(r));
    }
    if (!full)
        return -EACCES;
    text_printf(why, "; free %zu KiB where it is full", places->bytes / 1024 + 1);
    return -ENOSPC;
}
