/* Watching by ptrace(2): one thread of ours traces all threads of the target for as long as
 * anything is watched, sets their debug registers, and makes each hit the same SIGTRAP that the
 * other route gives (by_perf.h).
 *
 * A tracer that is killed leaves the registers as they are, and a SIGTRAP that comes of them is
 * forced upon the target: so that it needs a handler from before the first register is set to
 * after the last one is cleared. The kernel takes that handler away when the thread that writes
 * blocks SIGTRAP. Threads that do are not armed, and what happens all the same is caught here:
 * then all is disarmed, and it says so.
 *
 * A thread has one tracer at a time: the watcher claims the process (trace/claims.h), and stops a
 * thread for whoever else in this daemon wants it. */
#pragma once

#include "fs/trace/claims.h"
#include "fs/watch/registers.h"

#include <pthread.h>
#include <stdatomic.h>

struct by_ptrace;

/* Traces all threads of a process, and those that it makes. -EBUSY: another tracer has one, and why
 * says who; -EPERM: not allowed; -ESRCH, -EAGAIN, -ENOMEM, -E2BIG. */
int by_ptrace_new(pid_t pid, struct by_ptrace **out, struct text *why);
/* Has a register of each thread watch a place; NULL: nothing. Returns once that is so: but for
 * threads in an uninterruptible system call, which come to it as they leave it, and for those that
 * wait for this daemon. -EBUSY: no register is free; -ECANCELED: SIGTRAP is not handled (any more),
 * and nothing is armed; -ESRCH; why says it in words. Threads that block SIGTRAP are left out. */
int by_ptrace_set(struct by_ptrace *tracer, unsigned slot, const struct watch_place *place,
                  struct text *why);
/* To be called every few milliseconds while anything is armed: 0, or -ECANCELED, -ESRCH as above.
 * *hits: how many there were. */
int by_ptrace_attend(struct by_ptrace *tracer, uint64_t *hits);
/* Disarms all and lets them go. Where a thread can't be stopped that is left to its own
 * thread, and goes on. NULL is fine. */
void by_ptrace_free(struct by_ptrace *tracer);

/* ---- what its parts share: by_ptrace.c, _follow.c (its thread), _seize.c, _arm.c ---- */

/* One thread of the target. */
struct tracee {
    pid_t tid;
    bool stopped;       /* and was not let go on yet */
    bool interrupted;   /* told to stop, or about to */
    bool in_group_stop; /* by job control, which it stays in */
    bool blocks;        /* SIGTRAP, so that it can't be armed */
    int signal;         /* that it goes on with */
    unsigned calls;     /* system calls after which it is given up that it unblocks SIGTRAP */
    uint64_t version;   /* of the registers that it has */
};

struct by_ptrace {
    struct claim claim; /* the first member: a claim of its is it */
    int stat;           /* for watch_handled() */
    pthread_t thread;

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    bool started; /* it has seized all, or failed to */
    bool idle;    /* its thread waits on `wanted_change`, and for no tracee, or is gone */
    pthread_cond_t wanted_change;
    bool stirred;                                 /* somebody wants it to look at all this */
    uint64_t rounds;                              /* how often it looked */
    uint64_t version;                             /* of places */
    struct watch_place places[PROTO_WATCHES_MAX]; /* length 0: none */
    bool ending;
    unsigned paused;
    int error;      /* 0; or it is over: -ESRCH, or what seizing failed with */
    bool unhandled; /* SIGTRAP was found not to be handled: everything was disarmed */
    size_t late;    /* threads that haven't got the registers yet */
    bool alone;     /* it traces nothing */
    bool gone;      /* its thread ends */
    struct claim_hold *holds;
    struct text *why; /* of by_ptrace_new(), while it waits */

    atomic_ullong hits;
    atomic_int refused; /* -errno: a register couldn't be set */
    _Atomic pid_t refused_tid;

    /* its thread's own */
    struct watch_place own[PROTO_WATCHES_MAX];
    uint64_t own_version;
    uint64_t since[PROTO_WATCHES_MAX]; /* the version from which on a register has what is in own */
    struct tracee *tracees;
    size_t n, alloc;
    bool leaving; /* they are to be let go, for good or for now */
};

/* NULL: it isn't known. */
struct tracee *by_ptrace_find(struct by_ptrace *tracer, pid_t tid);
/* NULL: no memory. */
struct tracee *by_ptrace_add(struct by_ptrace *tracer, pid_t tid);
void by_ptrace_forget(struct by_ptrace *tracer, struct tracee *tracee);
/* Traces all threads that are not known; those that a known one makes are traced from their first
 * moment on. Errors as by_ptrace_new(). */
int by_ptrace_seize(struct by_ptrace *tracer);
/* Whether the seccomp filters of its first thread let its agent clear what we would leave behind if
 * we were killed: 0, or -EPERM and others, with words. */
int by_ptrace_check_filters(struct by_ptrace *tracer);
/* The signal that makes its thread look up from waitpid(2). */
int by_ptrace_wake_signal(void);
/* The tracer's thread: arg is the struct by_ptrace, and a reference to it. */
void *by_ptrace_main(void *arg);

/* All that follows is for the tracer's thread, and for a tracee that is stopped. */

/* Gives it the registers that it is to have; none while SIGTRAP is blocked. */
void by_ptrace_apply(struct by_ptrace *tracer, struct tracee *tracee);
void by_ptrace_clear(const struct tracee *tracee);
/* Whether a SIGTRAP of a register's waits for it. */
bool by_ptrace_hit_waits(const struct tracee *tracee);
/* A tracee is about to get SIGTRAP: makes that a hit's if it is one. Returns the signal that the
 * tracee is to get. *unhandled: it would die of it. */
int by_ptrace_hit(struct by_ptrace *tracer, struct tracee *tracee, bool *unhandled);
