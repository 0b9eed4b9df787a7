/* The locks of multiprocessing's that the processes of one session hold: semaphores in memory that
 * they share, each of which knows nothing of who has it. So in each of these processes the threads
 * are looked for that stand in a with block of such a lock. */
#pragma once

#include "fs/proc/blocking.h"
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
    struct semaphore_hold *items;
    size_t n, alloc;
};

/* Finds those of process pid's session whose processes the reader may be told of. What can't be
 * read is left out. -ENOMEM. */
int semaphores_read(pid_t pid, const struct waits_reader *reader, struct semaphores *out);
void semaphores_deinit(struct semaphores *semaphores);

/* What a process has mapped at an address. -ENOENT: nothing that it shares. May hang (may_hang.h).
 */
int shared_word_at(pid_t pid, uint64_t address, struct shared_word *out);
bool shared_word_same(const struct shared_word *a, const struct shared_word *b);
