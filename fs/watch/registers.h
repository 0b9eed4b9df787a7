/* Watching memory of a target by the processor's debug registers (Intel SDM volume 3, 18.2): what
 * the two routes there share. Whichever is taken, a thread that writes gets a SIGTRAP, for which
 * the target must have a handler; what it says is in agent/wire/proto.h at struct probe_watch. */
#pragma once

#include "agent/wire/proto.h"
#include "fs/base/text.h"

#include <stdbool.h>
#include <sys/types.h>

/* What one register is to watch. */
struct watch_place {
    uint64_t address; /* aligned to length */
    uint32_t length;  /* 1, 2, 4 or 8 */
    uint64_t data;    /* PROTO_WATCH_DATA: what the handler is told */
};

/* Whether a register can watch that, and it is the target's own. */
bool watch_possible(uint64_t address, uint32_t length);

/* Opens a descriptor for watch_handled(), which stays with the process. -ESRCH, -EACCES,
 * -EMFILE. */
int watch_open_stat(pid_t pid);
/* Whether the process handles SIGTRAP; false also if it is gone. 4 us. */
bool watch_handled(int stat_fd);

/* The threads of a process, in no order; the caller's to free. -ESRCH, -EACCES,
 * -ENOMEM; -E2BIG: more than LWP_MAX. */
int watch_threads(pid_t pid, pid_t **out, size_t *n);
/* Whether a thread blocks SIGTRAP; the agent's own do. 10 us. */
bool watch_blocks(pid_t tid);
/* How many threads block SIGTRAP, the agent's own apart: what they write isn't
 * told of. 10 us a thread. */
size_t watch_blocking(pid_t pid);
/* A thread that has SIGTRAP waiting for it, which it blocks; 0: none has. */
pid_t watch_waiting(pid_t pid);
