#include "fs/inject/script/sweep.h"

#include "agent/base/cleanup.h"
#include "fs/inject/script/files.h"
#include "fs/remote/moment/target.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define ENTRIES_MAX 8192 /* of a directory that are looked at, and ... */
#define FILES_MAX 16     /* ... of one of ours */

static DIR *list(int fd)
{
    int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);

    if (!dir && copy >= 0)
        close(copy);
    return dir;
}

/* Whether the process that a directory was made for is gone, by the directory's name. */
static bool is_orphan(const char *name)
{
    uint64_t start, now;
    int pid;

    if (sscanf(name, REMOTE_FILES_PREFIX "%d-%lu-", &pid, &start) != 2)
        return false;
    int r = process_start_time(pid, &now);
    return r == -ESRCH || (r == 0 && now != start);
}

/* A daemon elsewhere, which numbers processes differently, may wait for it. */
static bool is_locked(int directory, const char *name)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};

    _cleanup_close_ int fd =
        openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    return fd >= 0 && fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

static void remove_directory(int parent, const char *name)
{
    struct dirent *entry;

    _cleanup_close_ int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    _cleanup_closedir_ DIR *dir = list(fd);
    for (int i = 0; dir && i < FILES_MAX && (entry = readdir(dir)); i++) {
        if (*entry->d_name == '.')
            continue;
        if (is_locked(fd, entry->d_name))
            return;
        unlinkat(fd, entry->d_name, 0);
    }
    unlinkat(parent, name, AT_REMOVEDIR);
}

void remote_sweep(int parent)
{
    struct dirent *entry;

    _cleanup_closedir_ DIR *dir = list(parent);
    for (int i = 0; dir && i < ENTRIES_MAX && (entry = readdir(dir)); i++)
        if (!strncmp(entry->d_name, REMOTE_FILES_PREFIX, strlen(REMOTE_FILES_PREFIX)) &&
            is_orphan(entry->d_name))
            remove_directory(parent, entry->d_name);
}
