/* Who waits for a lock of a file, and who has it: /proc/locks (proc_locks(5), the kernel's
 * fs/locks.c). */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct file_lock {
    uint64_t id; /* of the lock that is held: those that wait for it have the same */
    bool waits;  /* for the lock of that id, or for another one that waits for it */
    bool flock;  /* flock(2), and not fcntl(2) */
    bool write;  /* exclusive */
    pid_t pid;   /* of the process that asked for it; -1: it belongs to an open file description */
    uint64_t inode;
};

/* A line of /proc/locks. False: it is none, or of a lease. */
bool file_lock_parse(const char *line, struct file_lock *out);

/* The lock that process pid waits for, of a file with this inode. 0, with the lock that is in its
 * way in *out; -ENOENT: it waits for none now, or that can't be seen (of another pid namespace). */
int file_lock_waited_for(pid_t pid, bool flock, uint64_t inode, struct file_lock *out);
/* file_lock_waited_for() by a text like that of /proc/locks. */
int file_lock_find(const char *text, pid_t pid, bool flock, uint64_t inode, struct file_lock *out);
