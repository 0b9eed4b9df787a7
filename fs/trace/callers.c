#include "fs/trace/callers.h"

#include "agent/base/cleanup.h"

/* Never longer than the number of the loop's threads plus the blocked readers. */
static struct {
    pthread_mutex_t lock;
    struct callers_entry *first;
} callers = {.lock = PTHREAD_MUTEX_INITIALIZER};

void callers_add(struct callers_entry *entry, pid_t tid)
{
    *entry = (struct callers_entry){.tid = tid};
    if (!tid)
        return;
    _guard_mutex_(&callers.lock);
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
    entry->tid = 0;
}

bool callers_has(pid_t tid)
{
    _guard_mutex_(&callers.lock);
    for (const struct callers_entry *r = callers.first; r; r = r->next)
        if (r->tid == tid)
            return true;
    return false;
}
