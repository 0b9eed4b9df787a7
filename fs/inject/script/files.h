/* The files by which a library is handed to a process that shares no file system with the daemon
 * for sure: a private directory in the process's own root.
 *
 * It is made and removed with the rights of the process's user (inject/file_user.h), has an
 * unpredictable name and mode 0700, and belongs to that user. The daemon holds a lock on the
 * library for as long as it waits; who finds the directory without one may remove it. */
#pragma once

#include "fs/inject/file_user.h"
#include "fs/inject/inject.h"
#include "fs/remote/moment/target.h"

#define SCRIPT_FILES_PREFIX ".probefs-" /* of the name: prefix, pid, start time, random number */
#define SCRIPT_FILES_PATH_MAX 256
#define SCRIPT_FILES_REPLY_MAX 4096

struct script_files {
    struct file_user owner;
    int parent, directory; /* descriptors */
    int library, reply;
    char name[128]; /* of the directory */
    char library_name[24];
    char path[SCRIPT_FILES_PATH_MAX]; /* of the directory, as the process sees it */
};

/* Makes the directory, with the library (`old`: the path by which it was loaded earlier, or NULL)
 * and a script that loads it. -EOPNOTSUPP: no directory is writable and may hold a library, why
 * says which were tried; -ENOSPC: none of those has room; -EPERM, with words: the process may do
 * more than its user; -ESRCH, -EACCES, -ENOMEM. The caller owns *out. */
int script_files_put(struct target *target, const struct inject_image *image, const char *old,
                     struct script_files *out, struct text *why);
/* What the script has said: the number of bytes, 0 as long as there is no whole line. */
size_t script_files_reply(const struct script_files *files, char *buf, size_t cap);
/* Gives up waiting: a script that has not begun to load will not. */
void script_files_unlock(struct script_files *files);
/* Removes all of it. */
void script_files_remove(struct script_files *files);

/* Whether a mapped file's path is that of a library that was put so; then its path as the process
 * sees it. */
bool script_files_path(const char *mapped, char *out, size_t cap);
