/* One process that is known, and what is kept of it from one look to the next. */
#pragma once

#include "fs/error_ring.h"
#include "fs/link/recording.h"
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
    struct recording *recording; /* what its agent records */
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
/* Holds what its agent has recorded by now (recording_refresh()), so that it is there when the process
 * ends. Cheap; what fails is tried again the next time. */
void process_watch(struct process *process);
/* What its agent records, as it was at the last process_watch(). Belongs to the process. */
static inline struct recording *process_recording(struct process *process)
{
    return process->recording;
}

/* Opens the process pid; errors as target_open(). The caller owns one reference. */
int process_new(pid_t pid, struct process **out);
/* Its end: others may hold on to it, but not to what is large. Takes over the caller's reference;
 * NULL is fine. */
void process_retire(struct process *process);

/* The value of NAME in a block as /proc/PID/environ has it (NAME=value, each ends with a NUL), if
 * that is a number as number_parse() wants it; else -1. The block is followed by a NUL. */
int64_t environ_number(const char *block, size_t size, const char *name);
