/* Who reads processes where the daemon itself doesn't want to (owner/owners.h): what the known
 * processes have to be asked for is asked here. */
#pragma once

#include "fs/format/stacks.h"
#include "fs/link/found.h"
#include "fs/process/membership.h"

/* What is told of a process that runs CPython. */
struct examined {
    struct membership membership;
    struct found_agent agent; /* but for its record; record_addr 0: it has none */
};

struct attacher;
struct looker;
struct process;
struct stop;
struct wanted;

struct examiner {
    void *arg;
    /* What runs in the process that was started then, in clock ticks since boot. now: its
     * membership is wanted as it is now, and not as it was when it began. Errors as target_open(),
     * and -ETIMEDOUT, -EAGAIN, -EIO: who reads it hangs, is busy, or has crashed. */
    int (*examine)(void *arg, pid_t pid, uint64_t start_time, bool now, struct examined *out);
    /* What program it is: adds lines of format/identity.h. */
    int (*identify)(void *arg, pid_t pid, uint64_t start_time, struct text *out);
    /* Its stacks: as stacks_text. */
    int (*stacks)(void *arg, pid_t pid, uint64_t start_time, enum stacks_form form,
                  struct text *why, struct text *out);
    /* Rows of its tables (sql/engine.h), all of one moment: adds them to wanted[i]->rows, which are
     * begun. looker: for whom. Errors as scene_fill(). */
    int (*rows)(void *arg, struct process *process, struct wanted *const *wanted, size_t n,
                const struct looker *looker, const struct stop *stop, struct text *why);
    const struct attacher *attacher; /* who puts agents into them */
};
