#include "fs/inject/script/files.h"

#include "agent/base/cleanup.h"
#include "fs/inject/inject_abi.h"
#include "fs/inject/script/sweep.h"
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

static const char script_text[] =
#include "script_py.h"
    ;
static const char load_text[] =
#include "load_py.h"
    ;

/* Where every program may write, most likely first. A library's name holds its index, so that the
 * path can be told from that of a mapping, which may have another root before it. */
static const char *const places[] = {"/tmp", "/var/tmp", "/dev/shm"};

static int write_all(int fd, const void *data, size_t size)
{
    const char *p = data;

    while (size) {
        ssize_t n = write(fd, p, size);
        if (n < 0)
            return -errno;
        p += n;
        size -= (size_t)n;
    }
    return 0;
}

/* The user and group that the process accesses files as. */
static int file_ids(pid_t pid, uid_t *uid, gid_t *gid)
{
    char status[8192];

    ssize_t n = proc_read(pid, "status", status, sizeof status);
    if (n < 0)
        return (int)n;
    const char *uids = proc_status_field(status, "Uid"), *gids = proc_status_field(status, "Gid");
    if (!uids || sscanf(uids, "%*u %*u %*u %u", uid) != 1 || !gids ||
        sscanf(gids, "%*u %*u %*u %u", gid) != 1)
        return -ESRCH;
    return 0;
}

static int open_beneath(int root, const char *path)
{
    struct open_how how = {
        .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
        .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };

    int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
    return fd < 0 ? -errno : fd;
}

/* A place where a library can be written and mapped. */
static int open_place(int root, const char *path)
{
    struct statvfs fs;

    _cleanup_close_ int fd = open_beneath(root, path);
    if (fd < 0)
        return fd;
    if (fstatvfs(fd, &fs) < 0)
        return -errno;
    if (fs.f_flag & ST_RDONLY)
        return -EROFS;
    if (fs.f_flag & ST_NOEXEC)
        return -ENOEXEC;
    return steal_fd(fd);
}

/* Makes a file of the directory, which belongs to the process's user. The caller owns the
 * descriptor. */
static int make_file(int directory, const char *name, mode_t mode, uid_t uid, gid_t gid)
{
    _cleanup_close_ int fd =
        openat(directory, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);

    if (fd < 0 || (geteuid() == 0 && fchown(fd, uid, gid) < 0))
        return -errno;
    return steal_fd(fd);
}

static int make_directory(struct remote_files *files, const struct target *target)
{
    uint64_t random[2];

    if (getrandom(random, sizeof random, 0) != sizeof random)
        return -EAGAIN;
    snprintf(files->name, sizeof files->name, REMOTE_FILES_PREFIX "%d-%lu-%016lx%016lx",
             target->pid, target->start_time, random[0], random[1]);
    if (mkdirat(files->parent, files->name, 0700) < 0)
        return -errno;
    files->directory =
        openat(files->parent, files->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (files->directory < 0)
        return -errno;
    struct stat st;
    if (fstat(files->directory, &st) < 0)
        return -errno;
    /* in a directory without the sticky bit somebody may have put another in its place */
    return st.st_uid == geteuid() && (st.st_mode & 07777) == 0700 ? 0 : -EPERM;
}

static int make_text(struct remote_files *files, const char *name, const struct text *text,
                     uid_t uid, gid_t gid)
{
    if (text->error)
        return text->error;
    _cleanup_close_ int fd = make_file(files->directory, name, 0400, uid, gid);
    return fd < 0 ? fd : write_all(fd, text->data, text->size);
}

static int make_scripts(struct remote_files *files, const char *old, uid_t uid, gid_t gid)
{
    _cleanup_(text_deinit) struct text script = TEXT_INIT;
    _cleanup_(text_deinit) struct text load = TEXT_INIT;

    /* none of these holds a quote or a backslash: all are names of ours */
    text_printf(&script, "directory = '%s'\n%s", files->path, script_text);
    text_printf(&load, "fresh = '%s/%s'\n", files->path, files->library_name);
    text_printf(&load, old ? "old = '%s'\n" : "old = None\n", old);
    text_puts(&load, load_text);
    int r = make_text(files, "load.py", &load, uid, gid);
    return r < 0 ? r : make_text(files, "script.py", &script, uid, gid);
}

static int fill(struct remote_files *files, const struct inject_image *image, const char *old,
                uid_t uid, gid_t gid)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    files->library = make_file(files->directory, files->library_name, 0500, uid, gid);
    if (files->library < 0)
        return files->library;
    /* of the open file, so that it ends with it and with nothing else */
    if (fcntl(files->library, F_OFD_SETLK, &lock) < 0)
        return -errno;
    int r = write_all(files->library, image->data, image->size);
    if (r < 0)
        return r;
    files->reply = make_file(files->directory, "reply", 0600, uid, gid);
    if (files->reply < 0)
        return files->reply;
    r = make_scripts(files, old, uid, gid);
    if (r < 0)
        return r;
    /* last: from here on the process itself can change what is in it */
    return geteuid() == 0 && fchown(files->directory, uid, gid) < 0 ? -errno : 0;
}

static int put_at(struct target *target, int root, size_t place, const struct inject_image *image,
                  const char *old, struct remote_files *out)
{
    struct remote_files files = {.directory = -1, .library = -1, .reply = -1};
    uid_t uid;
    gid_t gid;

    files.parent = open_place(root, places[place]);
    if (files.parent < 0)
        return files.parent;
    remote_sweep(files.parent);
    int r = file_ids(target->pid, &uid, &gid);
    if (r == 0)
        r = make_directory(&files, target);
    snprintf(files.path, sizeof files.path, "%s/%s", places[place], files.name);
    snprintf(files.library_name, sizeof files.library_name, MEMFD_NAME "%zu.so", place);
    if (r == 0)
        r = fill(&files, image, old, uid, gid);
    if (r < 0) {
        remote_files_remove(&files);
        return r;
    }
    *out = files;
    return 0;
}

static void say_why_not(struct text *why, size_t place, int error)
{
    text_printf(why, "%s%s %s", place ? ", " : "", places[place],
                error == -ENOENT    ? "is missing"
                : error == -ELOOP   ? "is a symbolic link"
                : error == -EROFS   ? "is read-only"
                : error == -ENOEXEC ? "is mounted noexec"
                                    : strerror(-error));
}

int remote_files_put(struct target *target, const struct inject_image *image, const char *old,
                     struct remote_files *out, struct text *why)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/root", target->pid);
    _cleanup_close_ int root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return errno == ENOENT ? -ESRCH : -errno;
    if (!target_alive(target)) /* the number may be another's by now */
        return -ESRCH;
    text_puts(why, "no directory of the process can hold the library: ");
    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        int r = put_at(target, root, i, image, old, out);
        if (r == 0)
            text_clear(why);
        if (r == 0 || r == -ESRCH || r == -ENOMEM)
            return r;
        say_why_not(why, i, r);
    }
    return -EOPNOTSUPP;
}

size_t remote_files_reply(const struct remote_files *files, char *buf, size_t cap)
{
    ssize_t n = pread(files->reply, buf, cap - 1, 0);

    if (n <= 0)
        return 0;
    buf[n] = 0;
    char *end = strchr(buf, '\n');
    if (!end)
        return 0;
    *end = 0;
    return (size_t)(end - buf);
}

void remote_files_unlock(struct remote_files *files)
{
    struct flock lock = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    fcntl(files->library, F_OFD_SETLK, &lock);
}

void remote_files_remove(struct remote_files *files)
{
    const char *const names[] = {"script.py", "load.py", "reply", files->library_name};

    if (files->directory >= 0) {
        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
            unlinkat(files->directory, names[i], 0);
        unlinkat(files->parent, files->name, AT_REMOVEDIR);
    }
    cleanup_close(&files->reply);
    cleanup_close(&files->library);
    cleanup_close(&files->directory);
    cleanup_close(&files->parent);
    files->reply = files->library = files->directory = files->parent = -1;
}

bool remote_files_path(const char *mapped, char *out, size_t cap)
{
    static const char form[] = "/" REMOTE_FILES_PREFIX "%*[0-9a-f-]/" MEMFD_NAME "%1u.so%n";
    const char *name = strstr(mapped, "/" REMOTE_FILES_PREFIX);
    unsigned place;
    int size = 0;

    if (!name || sscanf(name, form, &place, &size) != 1 || !size || place >= ARRAY_SIZE(places))
        return false;
    if (name[size] && strcmp(name + size, " (deleted)"))
        return false;
    int n = snprintf(out, cap, "%s%.*s", places[place], size, name);
    return n > 0 && (size_t)n < cap;
}
