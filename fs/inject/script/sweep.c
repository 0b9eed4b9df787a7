#include "fs/inject/script/sweep.h"

#include "agent/base/cleanup.h"
#include "fs/inject/inject_abi.h"
#include "fs/inject/script/files.h"
#include "fs/remote/moment/target.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define ENTRIES_MAX 8192 /* of a directory that are looked at, and ... */
#define FILES_MAX 8      /* ... of one of ours; four are put there */
#define NAME_SIZE 32     /* of the name of such a file */

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

    if (sscanf(name, SCRIPT_FILES_PREFIX "%d-%lu-", &pid, &start) != 2)
        return false;
    int r = process_start_time(pid, &now);
    return r == -ESRCH || (r == 0 && now != start);
}

/* A daemon elsewhere, which numbers processes differently, may wait for it. */
static bool is_locked(int directory, const char *name)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};

    _cleanup_close_ int fd = open_beneath(directory, name, O_RDONLY | O_NONBLOCK, 0, true);
    return fd >= 0 && fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* Whether a file of a directory is one of those that are put into it: of its user, with no other
 * name, and called so. */
static bool is_ours(int directory, const char *name, uid_t uid)
{
    static const char *const texts[] = {"script.py", "load.py", "reply"};
    unsigned place;
    struct stat st;
    int size = 0;

    bool known = sscanf(name, MEMFD_NAME "%1u.so%n", &place, &size) == 1 && size && !name[size];
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        known = known || !strcmp(name, texts[i]);
    return known && fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISREG(st.st_mode) && st.st_nlink == 1 && st.st_uid == uid;
}

/* The files of a directory of ours. The number; -1: something else is there, or it is in use. */
static int find_files(int directory, uid_t uid, char names[FILES_MAX][NAME_SIZE])
{
    struct dirent *entry;
    int n = 0;

    _cleanup_closedir_ DIR *dir = list(directory);
    while (dir && (entry = readdir(dir))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        if (n == FILES_MAX || strlen(entry->d_name) >= NAME_SIZE ||
            !is_ours(directory, entry->d_name, uid) || is_locked(directory, entry->d_name))
            return -1;
        strcpy(names[n++], entry->d_name);
    }
    return dir ? n : -1;
}

static void remove_directory(int parent, const char *name, uid_t uid)
{
    char names[FILES_MAX][NAME_SIZE];
    struct stat st;

    _cleanup_close_ int fd = open_beneath(parent, name, O_RDONLY | O_DIRECTORY, 0, true);
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != uid || (st.st_mode & 0777) != 0700)
        return;
    int n = find_files(fd, uid, names);
    if (n < 0)
        return;
    while (n)
        unlinkat(fd, names[--n], 0);
    unlinkat(parent, name, AT_REMOVEDIR);
}

void script_sweep(int parent, uid_t uid)
{
    struct dirent *entry;

    _cleanup_closedir_ DIR *dir = list(parent);
    for (int i = 0; dir && i < ENTRIES_MAX && (entry = readdir(dir)); i++)
        if (!strncmp(entry->d_name, SCRIPT_FILES_PREFIX, strlen(SCRIPT_FILES_PREFIX)) &&
            is_orphan(entry->d_name))
            remove_directory(parent, entry->d_name, uid);
}
