/* What of having the agent take samples takes the daemon's rights: a session with the agent, which
 * puts a handler of SIGTRAP in place, and the events that send SIGTRAP. Nothing here reads a byte
 * of the process's memory. Asked by plain data, as kernel_watch.h, by who reads what the handler
 * takes down: nothing that is asked is trusted.
 *
 * The handler stands before the first event is opened, and until the last one is closed. */
#pragma once

#include "fs/base/interrupt.h"
#include "fs/base/text.h"

#include <stdint.h>
#include <sys/types.h>

enum trap_op {
    TRAP_HANDLE = 1, /* has the agent's handler stand; once */
    TRAP_SEND,       /* opens the events of all threads; once, after it */
    TRAP_SILENCE,    /* closes them */
};

/* All bytes are defined, here and next. */
struct trap_ask {
    uint32_t op; /* enum trap_op */
    int32_t tid; /* of TRAP_HANDLE: the agent's own thread, whose seccomp filters are read; 0: not
                    known */
    uint64_t gil_interval; /* of TRAP_HANDLE: struct proto_samples */
};

struct trap_told {
    int32_t error; /* 0 or -errno */
    uint32_t unused;
    uint64_t cost_ns; /* of TRAP_SEND: what a SIGTRAP costs a thread, and what makes it come */
    char why[256];
};

struct target;
struct trap_watch;

/* tid: of the one thread that is sampled; 0: all; hz: times a second of its processor time.
 * -ENOTCONN: no agent is there; -EOPNOTSUPP: not with this kernel; -ENOMEM, or as agent_connect();
 * why says it in words. */
int trap_watch_new(struct target *target, pid_t tid, unsigned hz, struct trap_watch **out,
                   struct text *why);
/* Closes the events, and lets the handler go. NULL is fine. */
void trap_watch_free(struct trap_watch *watch);
/* Does what is asked. One at a time. */
void trap_watch_do(struct trap_watch *watch, const struct trap_ask *ask,
                   const struct interrupt *interrupt, struct trap_told *told);
/* To be called every few milliseconds, never while something is asked: has threads that are new
 * sampled, too. NULL; or why there may be no events any more, once and for all: they are closed. */
const char *trap_watch_look(struct trap_watch *watch);
