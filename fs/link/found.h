/* The agent that a process has already, found by looking at its memory: left there by an earlier
 * daemon, inherited by a fork, or brought in by `import probing`. */
#pragma once

#include "agent/wire/proto.h"
#include "fs/remote/memory/memory.h"

#include <stdbool.h>

/* Images of a process whose path makes them look like one. */
#define FOUND_IMAGES_MAX 1024

struct found_agent {
    uint64_t base, bias;  /* of its ELF image */
    uint64_t record_addr; /* of probe_agent_record */
    uint64_t start_addr;  /* of probe_agent_start() */
    pid_t pid;            /* what the process calls itself */
    struct probe_agent_record record;
    bool running; /* in this process, not only in the parent that it was forked from */
};

/* Looks for it; a running one first. -ENOENT: there is none; -EOPNOTSUPP: one of another version of
 * the protocol; -ESRCH, -EPERM, -EACCES, -ENOMEM. */
int found_agent_find(const struct memory *m, struct found_agent *out);
/* The one whose image begins there. The same errors. */
int found_agent_at(const struct memory *m, uint64_t base, struct found_agent *out);
/* Reads its record again. The same errors; -ENOENT: it is there no more. */
int found_agent_refresh(const struct memory *m, struct found_agent *found);
