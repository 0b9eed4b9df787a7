/* A library as a file in a target's own root, for processes that have no /proc to open their memfd
 * by. The target removes it as soon as it is loaded; so do we, if that failed. */
#pragma once

#include "fs/inject/file_user.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LIBRARY_FILE_PATH_MAX 128

struct library_file {
    struct file_user owner;
    int directory; /* in the target's root, or -1 */
    char name[48];
    char path[LIBRARY_FILE_PATH_MAX]; /* as the target sees it; "" if there is none */
};

/* Whether a process sees itself in its own /proc: then no file is needed. start_time as in
 * field 22 of /proc/PID/stat. */
bool library_file_needless(pid_t pid, uint64_t start_time);

/* Makes the file in a directory that the target may execute from, under a name that nobody can
 * guess, for the target's user alone. -EACCES: there is no such directory; -ENOSPC: none with room;
 * -EPERM: the target may do more than its user; why says so. -errno. */
int library_file_create(pid_t pid, const void *data, size_t size, struct library_file *out,
                        struct text *why);
/* Removes it if it is still there. One without a directory (-1) is fine. */
void library_file_remove(struct library_file *file);
