/* Processes as those see them that wait for each other: which threads sleep, and in what. Each is
 * read where it can be left behind (proc/may_hang.h). */
#pragma once

#include "fs/proc/blocking.h"

#include <stddef.h>

#define PEER_THREADS_MAX 256 /* of a process: of one with more it isn't known what it waits for */
#define PEER_COMMAND_MAX 96  /* bytes of a command line that are told */
#define PEER_POLLED_MAX 32   /* descriptors that one thread polls */

/* One descriptor that a thread waits for. */
struct peer_fd {
    int fd;
    bool writes; /* it waits for room, else for something to read */
};

struct peer_thread {
    pid_t tid;
    struct blocking blocking; /* BLOCKING_UNKNOWN: it runs, or isn't known */
    uint64_t switches;        /* how often it has left a processor: more once it has run */
    struct peer_fd fds[PEER_POLLED_MAX];
    size_t nfds;
    size_t more; /* descriptors that it polls besides */
};

struct peer {
    pid_t pid;
    char state;                     /* of /proc/PID/stat */
    char command[PEER_COMMAND_MAX]; /* unescaped; else its name */
    struct peer_thread *threads;    /* of all but the agent's own; NULL: not read */
    size_t nthreads;
    bool all; /* these are all threads that it has */
};

/* Reads process pid; its threads where with_threads is set. -ESRCH, -EACCES, -ENOMEM, and those of
 * may_hang.h. The caller owns *out. */
int peer_read(pid_t pid, bool with_threads, struct peer *out);
void peer_deinit(struct peer *peer);
/* What a thread of pid waits for, from its system call: sets fds and more. The process must not
 * hang. */
void peer_thread_read_fds(pid_t pid, struct peer_thread *thread);
/* Whether all its threads have slept since it was read. */
bool peer_slept(const struct peer *peer);
/* How often a thread has left a processor; 0: not known. Source: proc_pid_status(5). */
uint64_t thread_switches(pid_t pid, pid_t tid);
