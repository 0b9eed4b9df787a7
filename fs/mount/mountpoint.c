#include "fs/mount/mountpoint.h"

#include "agent/base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <mntent.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define OUR_TYPE "fuse.probefs"

static void cleanup_mounts(FILE **file)
{
    if (*file)
        endmntent(*file);
}

bool mount_info_find(const char *mounts, const char *path, struct mount_info *out)
{
    _cleanup_(cleanup_mounts) FILE *file = setmntent(mounts, "re");
    char line[2 * PATH_MAX]; /* a path has up to four characters for one; a longer line is cut */
    struct mntent entry;
    bool found = false;

    while (file && getmntent_r(file, &entry, line, sizeof line)) {
        if (strcmp(entry.mnt_dir, path))
            continue;
        const char *user = hasmntopt(&entry, "user_id");
        found = true; /* a later one is mounted over it */
        snprintf(out->type, sizeof out->type, "%s", entry.mnt_type);
        out->user = user ? (uid_t)strtoul(user + strlen("user_id="), NULL, 10) : (uid_t)-1;
    }
    return found;
}

static bool mounted_at(const char *path, struct mount_info *out)
{
    return mount_info_find("/proc/self/mounts", path, out);
}

/* realpath(3) that also names the root of a dead mount, which can't be looked at. */
static int make_absolute(char **path)
{
    char *real = realpath(*path, NULL);

    if (!real && errno == ENOTCONN) {
        _cleanup_free_ char *copy = strdup(*path);
        size_t n = copy ? strlen(copy) : 0;
        while (n > 1 && copy[n - 1] == '/')
            copy[--n] = 0;
        char *slash = copy ? strrchr(copy, '/') : NULL;
        const char *base = slash ? slash + 1 : copy;
        if (slash)
            *slash = 0;
        _cleanup_free_ char *parent = realpath(!slash ? "." : slash == copy ? "/" : copy, NULL);
        if (!parent || asprintf(&real, "%s/%s", strcmp(parent, "/") ? parent : "", base) < 0)
            real = NULL;
    }
    if (!real)
        return -errno;
    free(*path);
    *path = real;
    return 0;
}

extern char **environ;

static int run(const char *const *argv)
{
    pid_t pid;
    int status;

    int r = posix_spawnp(&pid, argv[0], NULL, NULL, (char *const *)argv, environ);
    if (r)
        return -r;
    if (waitpid(pid, &status, 0) < 0)
        return -errno;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

/* Removes a FUSE mount whose daemon has died: nothing can come back to it, so that takes nothing
 * away. */
static int remove_dead(const char *path, struct text *why)
{
    struct mount_info info;

    if (!mounted_at(path, &info) || strcmp(info.type, OUR_TYPE)) {
        text_printf(why, "%s is the mount of a daemon that has died; remove it: fusermount3 -u %s",
                    path, path);
        return -ENOTCONN;
    }
    const char *const argv[] = {"fusermount3", "-u", "-z", path, NULL};
    int r = geteuid() == 0 && umount2(path, MNT_DETACH) == 0 ? 0 : run(argv);
    if (r < 0) {
        text_printf(why,
                    "%s is the mount of a probefs that has died, started by uid %u, and can't "
                    "be removed; as that user or as root: fusermount3 -u %s",
                    path, info.user, path);
        return r;
    }
    text_printf(why, "removed the mount of a probefs that had died at %s", path);
    return 0;
}

static int check_empty(const char *path, struct text *why)
{
    const struct dirent *entry;
    struct mount_info info;

    if (mounted_at(path, &info)) {
        if (!strcmp(info.type, OUR_TYPE))
            text_printf(why, "%s is a probefs mount already; end it with: fusermount3 -u %s", path,
                        path);
        else
            text_printf(why,
                        "%s is in use, %s is mounted on it; choose another directory, or give "
                        "-o nonempty to hide it",
                        path, info.type);
        return -EBUSY;
    }
    DIR *dir = opendir(path);
    if (!dir)
        return 0; /* a directory to mount on need not be readable */
    bool empty = true;
    while (empty && (entry = readdir(dir)))
        empty = !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..");
    closedir(dir);
    if (empty)
        return 0;
    text_printf(why,
                "%s is not empty; choose an empty directory, or give -o nonempty to hide what "
                "is in it",
                path);
    return -ENOTEMPTY;
}

/* libfuse opens the device itself, for an ordinary user too. */
int mountpoint_check_device(struct text *why)
{
    _cleanup_close_ int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fd >= 0)
        return 0;
    int r = -errno;
    if (r == -ENOENT)
        text_puts(why, "there is no /dev/fuse; load the module: modprobe fuse (in a container: "
                       "run it with --device /dev/fuse --cap-add SYS_ADMIN)");
    else if (r == -ENODEV || r == -ENXIO)
        text_puts(why, "the kernel has no FUSE; load the module: modprobe fuse");
    else
        text_printf(
            why,
            "can't open /dev/fuse: %s; it is for everyone to open (mode 0666) where "
            "nobody changed that; else run as root (in a container: run it with --device /dev/fuse "
            "--cap-add SYS_ADMIN)",
            strerror(-r));
    return r;
}

static bool in_path(const char *name)
{
    const char *path = getenv("PATH");
    _cleanup_free_ char *copy = strdup(path ? path : "/usr/local/bin:/usr/bin:/bin");
    char *save = NULL, file[PATH_MAX];

    for (char *dir = copy ? strtok_r(copy, ":", &save) : NULL; dir;
         dir = strtok_r(NULL, ":", &save)) {
        snprintf(file, sizeof file, "%s/%s", dir, name);
        if (access(file, X_OK) == 0)
            return true;
    }
    return access("/usr/bin/fusermount3", X_OK) == 0;
}

int mountpoint_check_helper(struct text *why)
{
    if (in_path("fusermount3"))
        return 0;
    text_puts(why, "there is no fusermount3, with which a user mounts; install it: "
                   "apt-get install fuse3 (or run as root)");
    return -ENOENT;
}

/* What an ordinary user needs; root mounts by itself. */
static int check_user(const struct options *options, struct text *why)
{
    if (geteuid() == 0)
        return 0;
    int r = mountpoint_check_helper(why);
    if (r < 0)
        return r;
    if (access(options->mountpoint, W_OK) < 0) {
        text_printf(why,
                    "you may not write to %s, so you may not mount there; choose a directory "
                    "of your own",
                    options->mountpoint);
        return -EACCES;
    }
    return 0;
}

int mountpoint_prepare(struct options *options, struct text *why)
{
    struct stat st;

    int r = make_absolute(&options->mountpoint);
    const char *path = options->mountpoint;
    if (r == 0)
        r = stat(path, &st) < 0 ? -errno : 0;
    if (r == -ENOTCONN) {
        r = remove_dead(path, why);
        if (r < 0)
            return r;
        r = stat(path, &st) < 0 ? -errno : 0;
    }
    if (r == -ENOENT) {
        text_printf(why, "there is no directory %s; make it: mkdir %s", path, path);
        return r;
    }
    if (r < 0) {
        text_printf(why, "can't look at %s: %s", path, strerror(-r));
        return r;
    }
    if (!S_ISDIR(st.st_mode)) {
        text_printf(why, "%s is not a directory", path);
        return -ENOTDIR;
    }
    if (!options->nonempty)
        r = check_empty(path, why);
    if (r == 0)
        r = mountpoint_check_device(why);
    if (r == 0)
        r = check_user(options, why);
    return r;
}
