/* The locks of multiprocessing's that the processes of one session hold: semaphores in memory that
 * they share, each of which knows nothing of who has it. So in each of these processes the threads
 * are looked for that stand in a with block of such a lock. */
#pragma once

#include "fs/proc/maps.h"
#include "fs/remote/waits/waits.h"

#define SEMAPHORE_PROCESSES_MAX 32 /* that are looked at */

/* The memory of a file that several have mapped, wherever that is. */
struct shared_word {
    uint32_t dev_major, dev_minor;
    uint64_t inode, offset;
};

/* One thread in a with block. */
struct semaphore_hold {
    struct shared_word word;
    const char *kind; /* static: "multiprocessing.Lock" */
    bool one;         /* only one can have it */
    pid_t pid, tid;
    char func[128], file[256]; /* where it took it, escaped, maybe cut; "": not known */
    int line;
};

struct semaphores {
    bool read; /* else there is nothing else here yet */
    bool cut;  /* not all processes were looked at */
    struct semaphore_hold *items;
    size_t n, alloc;
};

/* Finds those of process pid's session whose processes the reader may be told of. What can't be
 * read is left out; after until_ns (CLOCK_MONOTONIC) no further process is looked at. -ENOMEM. */
int semaphores_read(pid_t pid, const struct waits_reader *reader, uint64_t until_ns,
                    struct semaphores *out);
/* Adds those of one process, which is read here. -ENOMEM. */
int semaphores_read_one(pid_t pid, struct semaphores *out);
void semaphores_deinit(struct semaphores *semaphores);

/* What a process with these mappings has at an address. False: nothing that it shares. */
bool shared_word_in(const struct maps *maps, uint64_t address, struct shared_word *out);
bool shared_word_same(const struct shared_word *a, const struct shared_word *b);
