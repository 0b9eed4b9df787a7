/* What the parts of a watcher share: watch_ptrace.c (what others ask of it), watch_follow.c (its thread), watch_seize.c
 * (which threads it traces) and watch_registers.c (debug registers). */
#pragma once

#include "fs/trace/watch_ptrace.h"

#include <pthread.h>
#include <stdatomic.h>

/* One thread of the target. */
struct tracee {
    pid_t tid;
    bool stopped;        /* and was not let go on yet */
    bool interrupted;    /* told to stop, or about to */
    bool in_group_stop;  /* by job control, which it stays in */
    bool blocks;         /* SIGTRAP, so that it can't be armed */
    int signal;          /* that it goes on with */
    unsigned calls;      /* system calls after which it is given up that it unblocks SIGTRAP */
    uint64_t version;    /* of the registers that it has */
};

struct watch_tracer {
    atomic_uint refs;
    pid_t pid;
    int stat;                         /* for watch_handled() */
    pthread_t thread;
    struct watch_tracer *next;        /* guarded by the lock of all */

    pthread_mutex_t lock;             /* guards what follows */
    pthread_cond_t changed;
    bool started;                     /* it has seized all, or failed to */
    bool idle;                        /* its thread waits on `wanted_change`, and for no tracee, or is gone */
    pthread_cond_t wanted_change;
    bool stirred;                     /* somebody wants it to look at all this */
    uint64_t rounds;                  /* how often it looked */
    uint64_t version;                 /* of places */
    struct watch_place places[PROTO_WATCHES_MAX]; /* length 0: none */
    bool ending;
    unsigned paused;
    int error;                        /* 0; or it is over: -ESRCH, or what seizing failed with */
    bool unhandled;                   /* SIGTRAP was found not to be handled: everything was disarmed */
    size_t late;                      /* threads that haven't got the registers yet */
    bool alone;                       /* it traces nothing */
    bool gone;                        /* its thread ends */
    struct watch_hold *holds;
    struct text *why;                 /* of watch_tracer_new(), while it waits */

    atomic_ullong hits;
    atomic_int refused;               /* -errno: a register couldn't be set */
    _Atomic pid_t refused_tid;

    /* its thread's own */
    struct watch_place own[PROTO_WATCHES_MAX];
    uint64_t own_version;
    uint64_t since[PROTO_WATCHES_MAX]; /* the version from which on a register has what is in own */
    struct tracee *tracees;
    size_t n, alloc;
    bool leaving;                     /* they are to be let go, for good or for now */
};

/* NULL: it isn't known. */
struct tracee *watch_find(struct watch_tracer *tracer, pid_t tid);
/* NULL: no memory. */
struct tracee *watch_add(struct watch_tracer *tracer, pid_t tid);
void watch_forget_tracee(struct watch_tracer *tracer, struct tracee *tracee);
/* Traces all threads that are not known; those that a known one makes are traced from their first moment on. Errors
 * as watch_tracer_new(). */
int watch_seize(struct watch_tracer *tracer);
/* Whether the seccomp filters of its first thread let its agent clear what we would leave behind if we were killed:
 * 0, or -EPERM and others, with words. */
int watch_check_filters(struct watch_tracer *tracer);
/* The signal that makes its thread look up from waitpid(2). */
int watch_wake_signal(void);
/* Its thread: arg is the struct watch_tracer, and a reference to it. */
void *watch_main(void *arg);
void watch_tracer_unref(struct watch_tracer *tracer);

/* All of these are of its thread, and of a tracee that is stopped. */

/* Gives it the registers that it is to have; none while SIGTRAP is blocked. */
void watch_apply(struct watch_tracer *tracer, struct tracee *tracee);
void watch_clear(const struct tracee *tracee);
/* Whether a SIGTRAP of a register's waits for it. */
bool watch_hit_waits(const struct tracee *tracee);
/* It is about to get SIGTRAP: makes that a hit's if it is one. Returns the signal that it is to get. *unhandled: it
 * would die of it. */
int watch_hit(struct watch_tracer *tracer, struct tracee *tracee, bool *unhandled);
