/* Which threads of this machine wait for an answer of ours.
 *
 * A thread inside a FUSE request sleeps uninterruptibly in the kernel: a ptrace stop only comes
 * once the request is answered. Whoever means to stop a thread asks here first, and again while
 * it waits for the stop: otherwise a Python program that reads its own backtrace would make the
 * daemon wait for itself.
 *
 * The set belongs to the process, as errno belongs to a thread: the one exception to "no global
 * mutable state", so that fs/trace needs to know nothing of FUSE. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* The thread of one request in flight; lives on the stack of who answers it, or wherever a reply
 * that comes later is kept. */
struct callers_entry {
    pid_t tid;
    unsigned slot; /* where other processes see it; CALLERS_SHARED_MAX: nowhere */
    struct callers_entry *previous, *next;
};

/* Puts thread tid, which waits for a request, into the set; 0 (a thread of a foreign pid
 * namespace) is kept out. */
void callers_add(struct callers_entry *entry, pid_t tid);
/* Takes it out; call it before the reply is sent, for the thread runs on with the reply. */
void callers_remove(struct callers_entry *entry);

/* Whether thread tid waits for an answer of this daemon now. */
bool callers_has(pid_t tid);

/* So many of the set can be seen by other processes of the daemon. */
#define CALLERS_SHARED_MAX 4096

/* From now on the set can be seen in a file in memory, which nobody else can write to or change in
 * size. To be called once, before there are other threads. A descriptor, the caller's; -errno. */
int callers_share(void);
/* Has the set be what a file says, all the time, in another process of the daemon. Takes over the
 * descriptor. 0 or -errno. */
int callers_follow(int fd);
