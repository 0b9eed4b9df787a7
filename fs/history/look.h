/* How one process is at one moment, for the history. */
#pragma once

#include "fs/history/file.h"
#include "fs/process/process.h"

struct history_look {
    const struct history_sample *before; /* what the last look found; zero: it is the first one */
    bool again;                          /* its threads are looked at even if it hasn't run since */
    bool with_command;
    /* the outcome */
    struct history_sample sample;
    bool looked;         /* at its threads */
    struct text command; /* the caller's to deinit */
};

/* Looks from outside, with a thread that can be left behind (proc/may_hang.h). -ESRCH, -EACCES,
 * -EPERM; -ETIMEDOUT: it hangs; -EAGAIN, -ENOMEM. */
int history_look(struct process *process, struct history_look *look);
