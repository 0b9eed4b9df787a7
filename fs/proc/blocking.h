/* The system call that a thread sleeps in, and what of its arguments says what it waits for.
 * Source: proc_pid_syscall(5); the arguments are those of the calls' own man pages. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum blocking_kind {
    BLOCKING_UNKNOWN, /* none, or one that isn't known here */
    BLOCKING_READ,    /* fd: until there is something to read, or a peer has closed it */
    BLOCKING_WRITE,   /* fd: until there is room, or bytes have gone */
    BLOCKING_ACCEPT,  /* fd */
    BLOCKING_CONNECT, /* fd */
    BLOCKING_POLL,    /* `count` struct pollfd at `address` */
    BLOCKING_SELECT,  /* fd_sets of `count` bits: of readers at address, of writers at `writers` */
    BLOCKING_EPOLL,   /* fd: of the epoll instance */
    BLOCKING_FLOCK,   /* fd */
    BLOCKING_FCNTL,   /* fd: a record lock of it */
    BLOCKING_CHILD,   /* `child` */
    BLOCKING_FUTEX,   /* at address; `shared`: other processes can wake it */
    BLOCKING_SLEEP,   /* a time, or a signal; also by a poll or select of no descriptors */
};

struct blocking {
    enum blocking_kind kind;
    int number; /* of the system call; -1: it is in none */
    int fd;     /* -1: of none */
    uint64_t address, writers, count;
    pid_t child; /* as the process numbers it; 0: any of several */
    bool pidfd;  /* the child is the one of fd */
    bool shared;
    bool timed; /* ends by itself */
};

/* A line of /proc/PID/task/TID/syscall. False, and *out is of kind BLOCKING_UNKNOWN: it runs, or
 * sleeps outside of system calls. */
bool blocking_parse(const char *line, struct blocking *out);
/* What the thread sleeps in now. 0; -EAGAIN: it doesn't sleep in a system call; -ESRCH, -EACCES,
 * -EPERM. May hang while the process executes another program (may_hang.h). */
int blocking_read(pid_t pid, pid_t tid, struct blocking *out);
