/* The threads that a process's agent holds at a breakpoint, a step, ..., and those that are its
 * own: read passively, from its record. */
#pragma once

#include "agent/wire/proto.h"
#include "fs/recording/recording.h"
#include "fs/remote/moment/snapshot.h"

struct held {
    pid_t tid;         /* in the daemon's pid namespace */
    enum stop_why why; /* never STOP_NONE */
    uint32_t id;       /* of the breakpoint; 0: none */
    int line;
    uint32_t number;             /* of the stop; 0: not known */
    uint64_t since_ns, until_ns; /* CLOCK_REALTIME */
};

struct held_list {
    struct held *items; /* ascending by tid */
    size_t n;
    uint64_t *pausing; /* those that are to stop at the next line that they run, by pthread_t */
    size_t npausing;
    pid_t own[PROTO_OWN_MAX]; /* the agent's threads, in the daemon's pid namespace */
    size_t nown;
};

/* None where no agent runs. recording: knows the agent, as far as one is known by now; NULL: it is
 * looked for, which takes a while. -ESRCH, -EPERM, -ENOMEM and the like. The caller owns *out
 * (held_list_deinit). */
int held_list_read(struct target *target, struct recording *recording, struct held_list *out);
void held_list_deinit(struct held_list *list);
bool held_is_pausing(const struct held_list *list, uint64_t thread);
bool held_is_own(const struct held_list *list, pid_t tid);
/* Says of the threads of a snapshot what holds them, and leaves the agent's own out of it, but for
 * `tid`; 0: all of them. */
void held_mark(const struct held_list *list, pid_t tid, struct snapshot *snapshot);
/* snapshot_take() and held_mark() in one, for options->tid. */
int held_snapshot(struct target *target, struct recording *recording,
                  const struct snapshot_options *options, struct snapshot **out);
/* "breakpoint 3", "watchpoint 2", "pause", "step" or "crash, see crash/". */
void held_name(const struct held *held, char name[THREAD_HELD_MAX]);
/* NULL: that thread isn't held. */
const struct held *held_find(const struct held_list *list, pid_t tid);
