#include "fs/proc/file_locks.h"

#include "agent/base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOCKS_MAX (1u << 20) /* bytes of /proc/locks that are looked at */

/* "1: -> POSIX  ADVISORY  WRITE 5690 fe:00:9980282 0 EOF"; those that wait are indented. */
bool file_lock_parse(const char *line, struct file_lock *out)
{
    char kind[8], mode[12], access[8];
    struct file_lock lock = {0};
    int n = 0;

    if (sscanf(line, "%lu: %n", &lock.id, &n) != 1 || !n)
        return false;
    line += n;
    if (!strncmp(line, "->", 2)) {
        lock.waits = true;
        line += 2;
    }
    if (sscanf(line, " %7s %11s %7s %d %*x:%*x:%lu", kind, mode, access, &lock.pid, &lock.inode) !=
        5)
        return false;
    lock.flock = !strcmp(kind, "FLOCK");
    if (!lock.flock && strcmp(kind, "POSIX") && strcmp(kind, "OFDLCK"))
        return false;
    lock.write = !strcmp(access, "WRITE");
    *out = lock;
    return true;
}

/* The lock itself stands before those that wait for it. */
int file_lock_find(const char *text, pid_t pid, bool flock, uint64_t inode, struct file_lock *out)
{
    struct file_lock lock, held = {0};

    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!file_lock_parse(line, &lock))
            continue;
        if (!lock.waits)
            held = lock;
        else if (lock.pid == pid && lock.flock == flock && lock.inode == inode &&
                 held.id == lock.id) {
            *out = held;
            return 0;
        }
    }
    return -ENOENT;
}

int file_lock_waited_for(pid_t pid, bool flock, uint64_t inode, struct file_lock *out)
{
    _cleanup_free_ char *text = malloc(LOCKS_MAX);
    size_t size = 0, n;

    FILE *file = text ? fopen("/proc/locks", "re") : NULL;
    if (!file)
        return -ENOENT;
    while ((n = fread(text + size, 1, LOCKS_MAX - 1 - size, file)))
        size += n;
    fclose(file);
    text[size] = 0;
    return file_lock_find(text, pid, flock, inode, out);
}
