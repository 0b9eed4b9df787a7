/* Work on a process that may hang in the kernel for good.
 *
 * A page of a process's memory, its executable, a library or its root directory may lie on a file
 * system that doesn't answer, as of an NFS server that is gone: who touches it sleeps, and no
 * signal ends that. So threads that can be left behind do such work, and a caller waits until it is
 * done or sleeps in one system call for two seconds. Work that is left behind keeps its thread, and
 * what it works with, until the kernel lets go of them. Until then the process is said to hang at
 * once; but it is tried again after ten seconds, and after twice as long each time.
 *
 * How much one user's processes may leave behind is limited: who has many that hang holds nobody
 * else up. The threads belong to the daemon, as the set of requests does (trace/callers.h). */
#pragma once

#include "fs/base/interrupt.h"
#include "fs/base/text.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/types.h>

#define MAY_HANG_USER 32     /* of one user's processes, left behind: then none is looked at */
#define MAY_HANG_LOOK_MS 100 /* between two looks at a thread that is waited for */
#define MAY_HANG_TOTAL 256   /* of all but root's */

/* A member of a larger structure on the heap, which is all that `run` touches: its caller may be
 * gone before it is. */
struct may_hang {
    pid_t pid; /* of the process; 0: of none, and it can't hang */
    void (*run)(struct may_hang *work);
    void (*free)(struct may_hang *work); /* the whole, once neither side needs it */
    struct interrupt unwanted; /* raised when it isn't waited for any more, or is interrupted */

    /* the implementation's own */
    unsigned refs;
    enum { MAY_HANG_RUNS, MAY_HANG_DONE, MAY_HANG_LEFT } state;
    pthread_cond_t done;
    pid_t tid;             /* of the thread that does it, of whatever process */
    unsigned sleeps;       /* looks in a row that saw it in the same sleep */
    char sleep[192];       /* that one, as /proc says it */
    struct may_hang *next; /* of those that sleep, or are left behind */
    bool listed;
    uid_t uid;           /* these of the process, once listed */
    uint64_t start_time; /* clock ticks since boot */
    uint64_t left_ns;    /* CLOCK_MONOTONIC, when it was left behind; 0: not yet */
};

/* Begins with a structure that is zero but for pid, run and free. The caller has a reference
 * then. */
void may_hang_init(struct may_hang *work);
void may_hang_unref(struct may_hang *work); /* NULL is fine */

/* Has work done, here if the thread works on that process already (it can be left behind, then).
 * -ETIMEDOUT: the process hangs, or its user's processes left too much behind; -EAGAIN: no thread
 * is to be had. */
int may_hang_start(struct may_hang *work);
/* Waits for work that was started. Once interrupt, which may be NULL, is raised, so is
 * work->unwanted, and a sleep is waited for no longer. 0: it is done; -ETIMEDOUT, -EINTR: it is
 * left behind, and nothing of it may be touched. */
int may_hang_wait(struct may_hang *work, const struct interrupt *interrupt);
/* Looks at n that were started side by side, NULLs between them, until all are done or left
 * behind, so that their times run together. */
void may_hang_wait_all(struct may_hang *const *works, size_t n);
/* may_hang_start() and may_hang_wait(). */
int may_hang_run(struct may_hang *work, const struct interrupt *interrupt);

/* Begins work that a thread of another process does, while the caller waits for its answer: it
 * isn't run here, and may have been before. The caller has a second reference then. -ETIMEDOUT as
 * may_hang_start(). */
int may_hang_begin(struct may_hang *work, pid_t tid);
/* To be called every MAY_HANG_LOOK_MS until the answer comes. 0; -ETIMEDOUT, -EINTR: it is left
 * behind, as may_hang_wait(); 1: interrupt is raised, and it doesn't hang. */
int may_hang_look(struct may_hang *work, const struct interrupt *interrupt);
/* The thread is done with it, or its process has ended: gives up that reference. */
void may_hang_end(struct may_hang *work);
/* The calling thread can be left behind by another process, and works on that process from now on:
 * what it starts on it is done here. */
void may_hang_left_by_others(pid_t pid);

/* Why one of these errors came, and what to do. */
void may_hang_explain(int error, struct text *why);
/* Whether anything is left behind now: what it works with can't be freed. */
bool may_hang_any(void);
