/* The threads that a process's agent holds at a breakpoint, a step, ...: read
 * passively, from its record. */
#pragma once

#include "agent/wire/proto.h"
#include "fs/remote/moment/target.h"

struct held {
    pid_t tid;         /* in the daemon's pid namespace */
    enum stop_why why; /* never STOP_NONE */
    uint32_t id;       /* of the breakpoint; 0: none */
    int line;
    uint64_t since_ns, until_ns; /* CLOCK_REALTIME */
};

struct held_list {
    struct held *items; /* ascending by tid */
    size_t n;
};

/* None where no agent runs. -ESRCH, -EPERM, -ENOMEM and the like. The caller
 * owns *out (held_list_deinit). */
int held_list_read(struct target *target, struct held_list *out);
void held_list_deinit(struct held_list *list);
/* NULL: that thread isn't held. */
const struct held *held_find(const struct held_list *list, pid_t tid);
