/* A process that samples one process: an owner process (owner.h) that is started for this alone,
 * with that process's own rights, and runs one source of fs/sampler/. All that it reads of the
 * process stays in it; what its store would keep it tells the mount's process (sampled.h), whose
 * store has it. What takes root's rights, the program in the kernel and its events, the mount's
 * process keeps, and is asked for it (sampler/bpf/kernel_watch.h).
 *
 * Its user can kill or stop it: then the profile ends, and says so. */
#pragma once

#include "fs/sampler/sampler.h"

#define SAMPLING_MAX 256 /* processes that are sampled so at a time */

/* What it is told as it begins. All bytes are defined. */
struct sampling {
    uint32_t source; /* its number in sampler_sources, and 1; 0: nothing, the process is there to
                        read */
    int32_t pid;     /* of the process that is sampled */
    uint64_t start_time;
    uint32_t modes, shown, hz; /* struct sampler_options */
    uint32_t native, children;
    int32_t tid;
};

/* Who begins and ends such processes: what struct target's sampled_by points to. */
struct sampling_starter {
    struct sampler_source source; /* the first member; of sampling_init() */
    void *arg;
    /* Begins one, which has greeted. -errno, and why says more. */
    int (*begin)(void *arg, const struct sampling *what, pid_t *pid, int *control,
                 struct text *why);
    /* Ends it, and takes over its socket. */
    void (*end)(void *arg, pid_t pid, int control);
};

void sampling_init(struct sampling_starter *starter);

/* In such a process: what has to be done before its greeting. -errno. */
int sampling_begin(void);
/* Samples, until nobody listens any more. */
void sampling_run(int control, const struct sampling *what);
