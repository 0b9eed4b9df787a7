/* Who is at the other end of what a thread waits for in a system call, on this host. */
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

/* Whose ends are looked for. */
struct ends {
    pid_t pid; /* the process that waits */
    const struct waits_reader *reader;
    uint64_t until_ns;               /* CLOCK_MONOTONIC: no more processes are looked at then */
    uint64_t age_ns;                 /* how old the following may be */
    struct descriptors *descriptors; /* without items: read once they are needed */
    struct semaphores *semaphores;   /* the same */
    struct sockets *sockets;
};

/* Of a descriptor that it waits to read from, or (writes) to write to. */
void end_of_fd(const struct ends *ends, int fd, bool writes, struct end *out);
/* Of a lock of a file, or of a child. */
void end_of_lock(const struct ends *ends, const struct peer_thread *thread, struct end *out);
void end_of_child(const struct ends *ends, const struct peer_thread *thread, struct end *out);
/* The children that are dead, and that it hasn't waited for: they stay zombies. */
void end_of_dead_children(const struct ends *ends, struct end *out);
/* Of a lock that processes share: a futex. The holders are those of ends->semaphores. -ENOMEM. */
int end_of_semaphore(const struct ends *ends, const struct peer_thread *thread, struct end *out);
