/* The known processes: which pids run CPython.
 *
 * Decided by their memory (target_open()) and remembered with a sighting, the negative answers
 * too. A process that executes another program becomes another struct process, one that ended is
 * forgotten together with what was cached of it. */
#pragma once

#include "fs/error_ring.h"
#include "fs/replies.h"
#include "fs/target.h"

/* One program run by one process: a recycled pid and an exec are each a new one. Stays valid
 * while referenced, but gives up its target when the process has ended. */
struct process {
    pid_t pid;
    uint64_t start_time;  /* clock ticks since boot */
    uint64_t serial;      /* no two have the same */
    int64_t rank;         /* RANK in its initial environment, -1: none */
    _Atomic(struct error_ring *) errors;
    struct replies replies; /* to what was written to its command files */
    atomic_llong interp;  /* the interpreter that `eval` runs in, chosen by ctl */
    atomic_uint refs;
    pthread_mutex_t lock; /* guards target */
    struct target *target;
};

struct process *process_ref(struct process *process);
void process_unref(struct process *process);
/* Its target with a reference, NULL once it has ended. */
struct target *process_target(struct process *process);
/* Whether it is still there; what it executes now isn't looked at. */
bool process_alive(struct process *process);

struct registry;

/* -ENOMEM. */
int registry_new(struct registry **out);
void registry_free(struct registry *registry);

/* The process pid, with a reference. -ENOENT: no such process, or it runs no CPython; -EPERM,
 * -EACCES: the daemon may not inspect it; -EMFILE, -ENOMEM. */
int registry_lookup(struct registry *registry, pid_t pid, struct process **out);

/* All of them, ascending by pid, each with a reference. The caller frees the array. -ENOMEM, or
 * what opening /proc fails with. */
int registry_list(struct registry *registry, struct process ***out, size_t *out_n);

/* The value of NAME in a block as /proc/PID/environ has it (NAME=value, each ends with a NUL), if
 * that is a number as number_parse() wants it; else -1. The block is followed by a NUL. */
int64_t environ_number(const char *block, size_t size, const char *name);
