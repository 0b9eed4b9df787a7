/* The other end of what a thread waits for in a system call: who has it, on this host. */
#pragma once

#include "fs/proc/descriptors.h"
#include "fs/proc/sockets.h"
#include "fs/remote/waits/peers.h"
#include "fs/remote/waits/semaphores.h"
#include "fs/remote/waits/waits.h"

#define END_NAME_MAX 256
#define END_HOLDERS_MAX 32

/* One process that can end the wait. */
struct end_holder {
    pid_t pid;
    const char *state;                 /* as in struct wait_holder */
    const struct semaphore_hold *hold; /* of a semaphore: where it was taken; else NULL */
};

struct end {
    const char *kind;        /* static: "pipe", "socket", "file lock", "child" ... */
    const char *held;        /* static: how the holders stand to it */
    const char *note;        /* static: what is to be said where there are none; NULL: nothing */
    char name[END_NAME_MAX]; /* unescaped; "": none */
    struct end_holder holders[END_HOLDERS_MAX];
    size_t n;
    bool cut;     /* there are more holders than these */
    bool certain; /* nobody but the holders can end the wait */
    bool likely;  /* nobody else does, as far as the daemon can see */
};

/* What is looked through for the other ends. */
struct ends {
    pid_t pid; /* the process that waits */
    const struct waits_reader *reader;
    uint64_t until_ns;               /* CLOCK_MONOTONIC: no more processes are looked at then */
    uint64_t age_ns;                 /* how old the following may be */
    struct descriptors *descriptors; /* without items: read once they are needed */
    struct semaphores *semaphores;   /* the same */
    struct sockets *sockets;
};

/* The end of a descriptor that a thread waits to read from, or (writes) to write to. */
void end_of_fd(const struct ends *ends, int fd, bool writes, struct end *out);
/* The end of a wait for a lock of a file, or for a child. */
void end_of_lock(const struct ends *ends, const struct peer_thread *thread, struct end *out);
void end_of_child(const struct ends *ends, const struct peer_thread *thread, struct end *out);
/* The children that are dead, and that it hasn't waited for: they stay zombies. */
void end_of_dead_children(const struct ends *ends, struct end *out);
/* The end of a wait for a lock that processes share: a futex. The holders are those of
 * ends->semaphores. -ENOMEM. */
int end_of_semaphore(const struct ends *ends, const struct peer_thread *thread, struct end *out);
