/* One process that is known, and what is kept of it from one look to the next. */
#pragma once

#include "fs/proc/ending.h"
#include "fs/process/error_ring.h"
#include "fs/process/membership.h"
#include "fs/process/replies.h"
#include "fs/recording/recording.h"
#include "fs/remote/moment/target.h"

struct access_target;
struct examined;
struct examiner;
struct facts;
struct profile;
struct user_ns;
struct watches;

/* One program run by one process: a recycled pid and an exec are each a new one. Stays valid
 * while referenced, but gives up its target when the process has ended. */
struct process {
    pid_t pid;
    uint64_t start_time;     /* clock ticks since boot */
    struct timespec started; /* the same by CLOCK_REALTIME, as it was when the process was found */
    uint64_t serial;         /* no two have the same */
    const struct examiner *examiner; /* who reads it; NULL: this process does */
    atomic_llong rank;               /* of membership, -1: none */
    _Atomic(struct error_ring *) errors;
    struct replies replies;      /* to what was written to its command files */
    struct recording *recording; /* what its agent records */
    struct profile *profile;     /* what is sampled of it */
    struct watches *watches;     /* what its agent wants to be told of when it is written */
    atomic_llong interp;         /* the interpreter that `eval` runs in, chosen by ctl */
    atomic_uint refs;
    bool watched;          /* for its end; guarded by those who do (ends.c) */
    atomic_ullong learned; /* when its facts were last read, CLOCK_MONOTONIC, ns; 0: never */
    pthread_mutex_t lock;  /* guards what follows */
    struct target *target;
    struct facts *facts; /* NULL: it recorded nothing so far */
    struct membership membership;
    bool worker;               /* another process of its job is that rank itself (jobs.h) */
    bool told;                 /* that was found out */
    uint64_t membership_again; /* when its membership is worth another look, CLOCK_MONOTONIC, ns */
    bool ended;                /* that, or an exec, was noted; then: */
    struct ending ending;
};

struct process *process_ref(struct process *process);
void process_unref(struct process *process);
/* The target of a process with a reference; NULL once it has ended, or if it can't be read. */
struct target *process_target(struct process *process);
/* The same for who samples it; where that is another process, its interpreter needn't be found. */
struct target *process_to_sample(struct process *process);
/* The target, of which nothing may have been read yet (target_hold()); NULL once it has ended. */
struct target *process_held(struct process *process);
/* Whether it is still there; what it executes now isn't looked at. */
bool process_alive(struct process *process);
/* Holds what its agent has recorded by now (recording_refresh()), and who may look at that and at
 * its profile, so that it is there when the process ends. Cheap; what fails is tried again the next
 * time. Returns whether there is anything. */
bool process_watch(struct process *process);
/* Notes that it has ended, or runs another program, and gives up what is large. Only the first
 * time. Returns whether it left a recording, or a profile. */
bool process_end(struct process *process);
/* Whether process_end() was called. */
bool process_ended(struct process *process);
/* Whether it has ended and left a recording; *out says who may look at that. */
bool process_left(struct process *process, struct access_target *out);
/* What its agent records, as it was at the last process_watch(). Belongs to the process. */
static inline struct recording *process_recording(struct process *process)
{
    return process->recording;
}

/* The process of a core file, which has ended, and whose target stays: errors and the core's owner
 * as target_open_core(). ns: the daemon's own user namespace. examiner: who reads it; NULL: this
 * process. Who owns the file may look at it. */
int process_new_core(struct core *core, unsigned number, const struct user_ns *ns,
                     const struct examiner *examiner, struct process **out);
/* Whether it is that of a core file. */
static inline bool process_is_core(const struct process *process)
{
    return process->pid >= TARGET_CORE_PID;
}
/* The number that it has, or had: what is shown. */
pid_t process_number(const struct process *process);
/* Opens the process pid; errors as target_open(). The caller owns one reference. */
int process_new(pid_t pid, struct process **out);
/* Holds on to a process that runs CPython, as the examiner has said, who stays valid and reads it.
 * Errors as target_hold(). The caller owns one reference. */
int process_new_examined(pid_t pid, const struct examiner *examiner,
                         const struct examined *examined, struct process **out);

/* Processes, each with a reference; NULL: it was taken out. */
struct process_list {
    struct process **items;
    size_t n, alloc;
};

void process_list_deinit(struct process_list *list);
/* Ascending by pid. */
void process_list_sort(struct process_list *list);

/* What it is in a distributed job, as it was when it was last looked at (jobs.h). */
struct membership process_membership(struct process *process);
/* Whether it only works for its rank, or is what an earlier start has left, by what jobs_learn()
 * has found; before that what was forked works for what has forked it. */
bool process_is_worker(struct process *process);
/* Whether jobs_learn() has found that out. */
bool process_is_told(struct process *process);
/* Says so of a process of which it was found out elsewhere. */
void process_tell(struct process *process, const struct membership *membership, bool is_worker);
