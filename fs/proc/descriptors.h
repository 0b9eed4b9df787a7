/* Which processes have the ends of pipes and sockets open: the links in /proc/PID/fd of all that
 * the daemon may look at (proc_pid_fd(5)). Reading these links touches no file. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define DESCRIPTORS_MAX 1000000u       /* pipes and sockets, of all processes ... */
#define DESCRIPTORS_COST_NS 500000000u /* ... and the processor time that finding them may take */
#define DESCRIPTORS_AGE_NS 100000000u  /* for which they are good enough to be told of */

enum descriptor_kind { DESCRIPTOR_OTHER, DESCRIPTOR_PIPE, DESCRIPTOR_SOCKET };

struct descriptor {
    uint64_t inode;
    enum descriptor_kind kind;
    pid_t pid;
    int fd;
};

/* What a link in /proc/PID/fd names: "pipe:[123]", "socket:[123]". Fills kind and inode alone. */
void descriptor_parse(const char *link, struct descriptor *out);

/* All descriptors of one look. */
struct descriptors {
    struct descriptor *items; /* by kind, inode, pid and fd */
    size_t n;
    bool cut; /* some processes were not looked at: not allowed, or a limit was reached */
    bool old; /* they were found before they were asked for */
};

/* Reads the descriptors of all processes as of now, or not older than age_ns: what was found last
 * is shared by all who ask. 0 and a copy in *out, which the caller owns; -ENOMEM, -EACCES. */
int descriptors_read(uint64_t age_ns, struct descriptors *out);
void descriptors_deinit(struct descriptors *descriptors);
/* The first with this kind and inode; *n: how many. */
const struct descriptor *descriptors_find(const struct descriptors *descriptors,
                                          enum descriptor_kind kind, uint64_t inode, size_t *n);

/* Whether a descriptor can be read from and written to: the mode of its link. -ESRCH: it is gone.
 */
int descriptor_mode(pid_t pid, int fd, bool *reads, bool *writes);

/* Reads where /proc/PID/fd/FD points to, with a NUL. The length, or -errno. */
ssize_t descriptor_link(pid_t pid, int fd, char *path, size_t cap);
/* The number behind "NAME:" in /proc/PID/fdinfo/FD ("ino", "Pid"); -1: there is none. */
int64_t descriptor_number(pid_t pid, int fd, const char *name);
/* The descriptors that an epoll instance waits for, at most max. How many, or -errno. */
ssize_t descriptor_epoll(pid_t pid, int fd, int *fds, size_t max);
