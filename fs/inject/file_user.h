/* Touching files in a process's own root, with the rights of its user there and no more.
 *
 * Who starts a process may choose its root and what is mounted below it: whoever goes there with
 * rights of his own is led to wherever the process's user likes. So all of it is done by a thread
 * that has the ids and groups that the process accesses files as, and no capabilities; no link is
 * followed. What is made there belongs to that user, who may change it at any time: it is only fit
 * for a process that is no more than what any other process of that user is. */
#pragma once

#include "fs/base/text.h"

#include <stdbool.h>
#include <sys/types.h>

#define FILE_USER_GROUPS_MAX 1024

struct file_user {
    uid_t uid;
    gid_t gid;
    size_t ngroups;
    gid_t groups[FILE_USER_GROUPS_MAX];
};

/* Reads who a process accesses files as. -EPERM: it has more rights than its user, who could change
 * what it is given, why says so; -ESRCH, -EACCES. */
int file_user_read(pid_t pid, struct file_user *out, struct text *why);
/* Runs work(arg) on a thread that has the owner's ids and groups, and no capabilities. Returns what
 * it returned; -EPERM: the daemon may not take these ids; -EAGAIN, -ENOMEM: there is no thread. */
int file_user_run(const struct file_user *owner, int (*work)(void *arg), void *arg);

/* A descriptor of a process's root directory, the caller's: for open_beneath() only. With the
 * daemon's own rights, since /proc asks for those of a debugger. -ESRCH, -EACCES. */
int root_open(pid_t pid);
/* Opens what lies below a directory, without following links; one_mount: nor into what is mounted
 * there. flags, mode: of open(2). The descriptor is the caller's, and close-on-exec. -errno. */
int open_beneath(int directory, const char *path, int flags, mode_t mode, bool one_mount);
/* Writes all of it where the file's position is. -errno. */
int write_whole(int fd, const void *data, size_t size);

/* Directories of a process that a library may be put into, and how: put() makes it in `directory`,
 * the path at `index`, or undoes what it did and returns -errno. It runs as the owner. */
struct library_places {
    const char *const *paths; /* from the process's root, the best first */
    size_t n;
    size_t bytes; /* that are needed there */
    int (*put)(void *arg, int directory, size_t index);
    void *arg;
};

/* Tries one after the other. -ENOSPC: where one might be, there is no room; -EACCES: nowhere; why
 * says what each lacks; -ENOMEM, -EAGAIN, -EMFILE. */
int library_put(const struct file_user *owner, int root, const struct library_places *places,
                struct text *why);
