#include "fs/trace/callers.h"

#include "agent/base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define SHARED_BYTES (CALLERS_SHARED_MAX * sizeof(atomic_int))

/* Never longer than the number of the loop's threads plus the blocked readers. */
static struct {
    pthread_mutex_t lock;
    struct callers_entry *first;
    atomic_int *shared; /* CALLERS_SHARED_MAX thread ids, 0 where there is none; NULL: not shared */
    unsigned next;      /* where a free one is looked for first */
    const atomic_int *followed; /* as shared, of the process that this one looks for; else NULL */
} callers = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* With the lock. */
static unsigned show(pid_t tid)
{
    for (unsigned i = 0; callers.shared && i < CALLERS_SHARED_MAX; i++) {
        unsigned slot = (callers.next + i) % CALLERS_SHARED_MAX;
        if (!atomic_load(&callers.shared[slot])) {
            atomic_store(&callers.shared[slot], tid);
            callers.next = slot + 1;
            return slot;
        }
    }
    return CALLERS_SHARED_MAX;
}

void callers_add(struct callers_entry *entry, pid_t tid)
{
    *entry = (struct callers_entry){.tid = tid};
    if (!tid)
        return;
    _guard_mutex_(&callers.lock);
    entry->slot = show(tid);
    entry->next = callers.first;
    if (entry->next)
        entry->next->previous = entry;
    callers.first = entry;
}

void callers_remove(struct callers_entry *entry)
{
    if (!entry->tid)
        return;
    _guard_mutex_(&callers.lock);
    if (entry->next)
        entry->next->previous = entry->previous;
    if (entry->previous)
        entry->previous->next = entry->next;
    else
        callers.first = entry->next;
    if (callers.shared && entry->slot < CALLERS_SHARED_MAX)
        atomic_store(&callers.shared[entry->slot], 0);
    entry->tid = 0;
}

bool callers_has(pid_t tid)
{
    _guard_mutex_(&callers.lock);
    for (const struct callers_entry *r = callers.first; r; r = r->next)
        if (r->tid == tid)
            return true;
    for (unsigned i = 0; callers.followed && i < CALLERS_SHARED_MAX; i++)
        if (atomic_load(&callers.followed[i]) == tid)
            return true;
    return false;
}

int callers_share(void)
{
    int fd = memfd_create("probefs-callers", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return -errno;
    void *shared = MAP_FAILED;
    if (ftruncate(fd, SHARED_BYTES) == 0)
        shared = mmap(NULL, SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) <
            0) {
        int error = errno;
        if (shared != MAP_FAILED)
            munmap(shared, SHARED_BYTES);
        close(fd);
        return -error;
    }
    callers.shared = shared;
    return fd;
}

int callers_follow(int fd)
{
    void *followed = mmap(NULL, SHARED_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    int error = errno;

    close(fd);
    if (followed == MAP_FAILED)
        return -error;
    callers.followed = followed;
    return 0;
}
