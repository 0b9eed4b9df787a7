#include "fs/inject/library_file.h"

#include "agent/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/proc/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/vfs.h>

#define STATUS_MAX 8192
/* pid namespaces above one another, kernel/pid_namespace.c, and its own */
#define NAMESPACES_MAX 33

/* Directories that a program may usually write to. */
static const char *const directories[] = {"/tmp", "/var/tmp", "/dev/shm", "/run", "/"};

/* Opens a file below the root if it is one of the kernel's /proc: one of another kind may be a
 * device, which opening would set to work. */
static int open_proc_file(int root, const char *path)
{
    char again[32];
    struct statfs fs;

    _cleanup_close_ int fd = open_beneath(root, path, O_PATH, 0, false);
    if (fd < 0 || fstatfs(fd, &fs) < 0 || fs.f_type != PROC_SUPER_MAGIC)
        return -1;
    snprintf(again, sizeof again, "/proc/self/fd/%d", fd);
    return open(again, O_RDONLY | O_CLOEXEC);
}

/* Whether a stat file is that of the process that began at start_time. */
static bool is_stat_of(int root, long number, uint64_t start_time)
{
    char path[48], text[1024];
    struct proc_stat stat;

    snprintf(path, sizeof path, "proc/%ld/stat", number);
    _cleanup_close_ int fd = open_proc_file(root, path);
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

    _cleanup_close_ int root = root_open(pid);
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

/* ---- as the process's user ---- */

struct creation {
    const void *data;
    size_t size;
    struct library_file *file;
};

static int create(void *arg, int directory, size_t index)
{
    const struct creation *creation = arg;
    struct library_file *file = creation->file;

    _cleanup_close_ int fd =
        open_beneath(directory, file->name, O_WRONLY | O_CREAT | O_EXCL, 0500, true);
    if (fd < 0)
        return fd;
    int r = write_whole(fd, creation->data, creation->size);
    if (r == 0) {
        file->directory = fcntl(directory, F_DUPFD_CLOEXEC, 0);
        r = file->directory < 0 ? -errno : 0;
    }
    if (r < 0)
        unlinkat(directory, file->name, 0);
    snprintf(file->path, sizeof file->path, "%s/%s", directories[index], file->name);
    return r;
}

static int remove_work(void *arg)
{
    struct library_file *file = arg;

    return unlinkat(file->directory, file->name, 0);
}

/* ---- what others call ---- */

int library_file_create(pid_t pid, const void *data, size_t size, struct library_file *out,
                        struct text *why)
{
    struct library_file file = {.directory = -1};
    struct creation creation = {.data = data, .size = size, .file = &file};
    const struct library_places places = {
        directories, ARRAY_SIZE(directories), size, create, &creation,
    };
    uint64_t random[2];

    _cleanup_close_ int root = root_open(pid);
    if (root < 0)
        return root;
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return -EIO;
    snprintf(file.name, sizeof file.name, ".probe-agent-%08x%08x.so", (unsigned)random[0],
             (unsigned)random[1]);
    int r = file_user_read(pid, &file.owner, why);
    if (r == -EPERM)
        text_puts(why, "; it has no /proc by which it could be given one otherwise");
    if (r < 0)
        return r;
    text_puts(why, "it has no /proc, and ");
    r = library_put(&file.owner, root, &places, why);
    if (r < 0)
        return r;
    *out = file;
    return 0;
}

void library_file_remove(struct library_file *file)
{
    if (file->directory < 0)
        return;
    file_user_run(&file->owner, remove_work, file);
    close(file->directory);
    file->directory = -1;
}
