/* Processes as those see them that wait for each other: which threads sleep, and in what. Each is
 * read where it can be left behind (proc/may_hang.h). */
#pragma once

#include "fs/proc/blocking.h"
#include "fs/remote/waits/semaphores.h"
#include "fs/remote/waits/waits.h"

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
    uint64_t switches;        /* how often it was given a processor: more once it has run */
    struct peer_fd fds[PEER_POLLED_MAX];
    size_t nfds;
    size_t more;  /* descriptors that it polls besides */
    int64_t file; /* the inode of the file whose lock it waits for, or the child of its pidfd; -1:
                     not known */
    bool shares;  /* it sleeps in a futex of ... */
    struct shared_word word; /* ... memory that it shares */
};

struct peer {
    pid_t pid;
    char state;                     /* of /proc/PID/stat; 0: it wasn't read */
    bool hangs;                     /* it can't be read, and the following is its name */
    char command[PEER_COMMAND_MAX]; /* unescaped; else its name */
    struct peer_thread *threads;    /* of all but the agent's own; NULL: not read */
    size_t nthreads;
    bool all; /* these are all threads that it has */
};

/* Reads n processes side by side, of which pid is set, or has the reader ask for them; their
 * threads where with_threads is set. What is known of one that can't be read stays as it was, but
 * for `hangs`, and its name. */
void peers_read(const struct waits_reader *reader, struct peer *const *peers, size_t n,
                bool with_threads);
void peer_deinit(struct peer *peer);
/* What a thread of pid waits for, from its system call: sets all behind `switches`. maps: of the
 * process, empty before the first of its threads; the caller's to deinit. The process must not
 * hang. */
void peer_thread_read(pid_t pid, struct maps *maps, struct peer_thread *thread);
/* Whether all its threads have slept since it was read. */
bool peer_slept(const struct peer *peer);
