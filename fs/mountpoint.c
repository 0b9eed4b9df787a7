#include "fs/mountpoint.h"

#include "fs/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define OUR_TYPE "fuse.probefs"

/* Undoes the octal escapes of mountinfo (\040 is a space) in place. */
static void unescape(char *s)
{
    char *to = s;

    for (; *s; s++) {
        if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
            s[3] >= '0' && s[3] <= '7') {
            *to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
            s += 3;
        } else {
            *to++ = *s;
        }
    }
    *to = 0;
}

/* id parent major:minor root PATH options [tags...] - TYPE SOURCE super-options */
static bool parse_line(char *line, const char *path, struct mount_info *out)
{
    char *dash = strstr(line, " - "), *save = NULL, *at = NULL;

    if (!dash)
        return false;
    *dash = 0;
    for (int field = 0; field < 5; field++)
        at = strtok_r(field ? NULL : line, " ", &save);
    if (!at)
        return false;
    unescape(at);
    if (strcmp(at, path))
        return false;

    struct mount_info info = {.user = (uid_t)-1};
    char super[512] = "";
    if (sscanf(dash + 3, "%63s %127s %511s", info.type, info.source, super) < 2)
        return false;
    const char *user = strstr(super, "user_id=");
    if (user)
        info.user = (uid_t)strtoul(user + 8, NULL, 10);
    *out = info;
    return true;
}

bool mount_info_find(const char *mountinfo, const char *path, struct mount_info *out)
{
    _cleanup_free_ char *text = strdup(mountinfo);
    char *save = NULL;
    bool found = false;

    /* a later line is mounted over an earlier one */
    for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line;
         line = strtok_r(NULL, "\n", &save))
        found |= parse_line(line, path, out);
    return found;
}

bool fuse_conf_allows_other(const char *conf)
{
    static const char word[] = "user_allow_other";

    for (const char *line = conf; *line;) {
        size_t n = strcspn(line, "\n");
        const char *end = line + n + (line[n] == '\n');
        while (n && strchr(" \t\r", line[n - 1]))
            n--;
        size_t indent = strspn(line, " \t");
        if (n == indent + strlen(word) && !memcmp(line + indent, word, strlen(word)))
            return true;
        line = end;
    }
    return false;
}

static char *read_text(const char *path)
{
    _cleanup_(text_deinit) struct text text = TEXT_INIT;
    char buf[4096];
    ssize_t n;

    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    while ((n = read(fd, buf, sizeof buf)) > 0)
        text_add(&text, buf, (size_t)n);
    return steal_pointer(text.data);
}

static bool mounted_at(const char *path, struct mount_info *out)
{
    _cleanup_free_ char *text = read_text("/proc/self/mountinfo");
    return text && mount_info_find(text, path, out);
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

/* Nothing can come back to a FUSE mount whose daemon has died: removing it takes nothing away. */
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
        text_printf(why, "%s is the mount of a probefs that has died, started by uid %u, and can't "
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
            text_printf(why, "%s is in use, %s is mounted on it; choose another directory, or give "
                             "-o nonempty to hide it", path, info.type);
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
    text_printf(why, "%s is not empty; choose an empty directory, or give -o nonempty to hide what "
                     "is in it", path);
    return -ENOTEMPTY;
}

/* libfuse opens the device itself, for an ordinary user too. */
static int check_device(struct text *why)
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
        text_printf(why, "can't open /dev/fuse: %s; it is for everyone to open (mode 0666) where "
                         "nobody changed that; else run as root (in a container: run it with --device /dev/fuse "
                         "--cap-add SYS_ADMIN)", strerror(-r));
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

/* What an ordinary user needs; root mounts by itself. */
static int check_user(const struct options *options, struct text *why)
{
    if (geteuid() == 0)
        return 0;
    if (!in_path("fusermount3")) {
        text_puts(why, "there is no fusermount3, with which a user mounts; install it: "
                       "apt-get install fuse3 (or run as root)");
        return -ENOENT;
    }
    if (access(options->mountpoint, W_OK) < 0) {
        text_printf(why, "you may not write to %s, so you may not mount there; choose a directory "
                         "of your own", options->mountpoint);
        return -EACCES;
    }
    if (options->allow_other) {
        _cleanup_free_ char *conf = read_text("/etc/fuse.conf");
        if (!conf || !fuse_conf_allows_other(conf)) {
            text_puts(why, "allow_other is not permitted to users here; root permits it with the "
                           "line user_allow_other in /etc/fuse.conf");
            return -EPERM;
        }
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
        r = check_device(why);
    if (r == 0)
        r = check_user(options, why);
    return r;
}
