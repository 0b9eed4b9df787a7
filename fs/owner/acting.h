/* A process that puts an agent into one process, or takes it out, and ends: an owner process
 * (owner.h) that is started for this alone. Its rights are that process's own, so that the kernel
 * checks what is done to it, and it has read nothing yet when the kernel is asked whether it may:
 * what it says of that is true.
 *
 * It may do more than one that only reads: be a tracer that writes, and write to the files of that
 * one process below /proc/PID. Who asks believes no more of its answer than of a target's: one end
 * of a channel, which is to be an agent's, some numbers, and words. */
#pragma once

#include "fs/base/text.h"
#include "fs/link/attach.h"

enum acting_op {
    ACTING_CHANNEL = 1, /* agent_channel() */
    ACTING_TAKE_OUT,    /* agent_take_out() */
    ACTING_LEND,        /* agent_lend() */
};

/* What is asked. All bytes are defined. */
struct acting {
    uint32_t op; /* enum acting_op; 0: nothing, the process is there to read */
    int32_t pid; /* of the process that it is done to */
    uint64_t start_time;
    uint32_t way;      /* enum attach_way, of ACTING_CHANNEL */
    uint32_t unbarred; /* no call is taken from it: else it couldn't read the process's filters */
    uint32_t unloadable;
    int32_t channel_tid;  /* these of ACTING_TAKE_OUT: struct agent_ended */
    uint64_t base;        /* of the agent, where there is one */
    uint64_t duration_ns; /* of ACTING_LEND */
};

/* What comes back, with the channel, and followed by the words if there are any. */
struct acting_reply {
    int32_t error; /* 0 or -errno */
    uint32_t why;  /* bytes */
    uint32_t done; /* it was put in, or unloaded, just now */
    uint32_t unused;
    uint64_t pause_ns;
    uint64_t base, bias, record_addr, start_addr; /* of the agent, struct found_agent */
    int64_t pid;
};

/* In such a process: what has to be done before its greeting. -errno. */
int acting_begin(const struct acting *acting);
/* Does it, and says what came of it. */
void acting_answer(int control, const struct acting *acting);

/* Waits for what process pid answers, which has greeted. *channel is the caller's; -1: none.
 * Returns reply->error; also -EINTR; -EIO: it has crashed; -ETIMEDOUT: it hangs, is stopped or
 * doesn't answer; -EPROTO: nothing says that. It is to be ended in any case. */
int acting_wait(int control, pid_t pid, const struct acting *acting,
                const struct interrupt *interrupt, struct acting_reply *reply, int *channel,
                struct text *why);
