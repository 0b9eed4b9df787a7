/* What of sampling a process by the program in the kernel takes the daemon's rights: its slot, its
 * ring, what the program is told of it, and the events of its threads. Nothing here reads a byte of
 * the process. Asked by plain data, so that who reads the process, and the ring, may be another
 * process with no more than the target's rights: nothing that is asked is trusted, and none of it
 * is about another process than the one that this was made for, and those that it forks. */
#pragma once

#include "fs/base/text.h"
#include "fs/sampler/bpf/records.h"

#include <stdbool.h>
#include <sys/types.h>

/* What is wanted, by who makes it. */
struct kernel_wish {
    pid_t pid;
    pid_t tid; /* only this thread; 0: all */
    unsigned hz;
    bool clock, faults, off; /* samples of processor time, of page faults, of what happens off it */
    bool native, children;   /* as struct sampler_options */
};

enum kernel_op {
    KERNEL_WATCH = 1, /* the process, as `watched` describes it: its ring is told */
    KERNEL_HEAR,      /* when threads leave and come back */
    KERNEL_SAMPLE,    /* opens the events of all threads */
    KERNEL_EQUIP,     /* `tid` has started, as perf_events_add() */
    KERNEL_VARY,      /* as perf_events_vary() of `tid` */
    KERNEL_TASKS,     /* where it is found which task runs: those fields of `watched` */
    KERNEL_FIGURES,   /* of the program */
    KERNEL_SILENCE,   /* closes the events */
};

/* All bytes are defined, here and next. */
struct kernel_ask {
    uint32_t op; /* enum kernel_op */
    int32_t tid;
    uint32_t anew, unused;
    struct kernel_watched watched; /* its slot, serial and flags, but for WATCHED_TASKS, are ours */
};

struct kernel_told {
    int32_t error;         /* 0 or -errno */
    uint32_t serial, ring; /* of KERNEL_WATCH; bytes of the ring */
    int32_t fd;            /* its descriptor, the asker's; -1: none */
    uint64_t event_ns;     /* what an event costs a thread, without the program; 0: not known */
    uint64_t ns;           /* of KERNEL_VARY */
    struct kernel_figures figures;
    char why[256];
};

struct kernel_watch;

/* -errno: it can't be had here, and *why says in words why. */
int kernel_watch_new(const struct kernel_wish *wish, struct kernel_watch **out, struct text *why);
/* Takes the process, and those it has forked, out of the program's sight. NULL is fine. */
void kernel_watch_free(struct kernel_watch *watch);
/* Does what is asked. One at a time, but for KERNEL_FIGURES. */
void kernel_watch_do(struct kernel_watch *watch, const struct kernel_ask *ask,
                     struct kernel_told *told);
