#include "fs/trace/claims.h"

#include "agent/base/cleanup.h"
#include "fs/proc/procfs.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct claim *all;

void claim_enter(struct claim *claim)
{
    _guard_mutex_(&lock);
    claim->next = all;
    all = claim;
}

void claim_leave(struct claim *claim)
{
    struct claim **at = &all;

    _guard_mutex_(&lock);
    while (*at && *at != claim)
        at = &(*at)->next;
    if (*at)
        *at = claim->next;
}

struct claim *claim_ref(struct claim *claim)
{
    atomic_fetch_add(&claim->refs, 1);
    return claim;
}

void claim_unref(struct claim *claim)
{
    if (atomic_fetch_sub(&claim->refs, 1) == 1)
        claim->free(claim);
}

/* The claim on a process, with a reference; NULL: there is none. */
static struct claim *find(pid_t pid)
{
    _guard_mutex_(&lock);
    for (struct claim *claim = all; claim; claim = claim->next)
        if (claim->pid == pid)
            return claim_ref(claim);
    return NULL;
}

bool claim_exists(pid_t pid)
{
    struct claim *claim = find(pid);

    if (claim)
        claim_unref(claim);
    return claim != NULL;
}

static pid_t process_of(pid_t tid)
{
    char status[8192];

    if (proc_read(tid, "status", status, sizeof status) <= 0)
        return 0;
    const char *field = proc_status_field(status, "Tgid");
    return field ? (pid_t)strtol(field, NULL, 10) : 0;
}

int claim_hold(pid_t tid, uint64_t deadline_ns, struct claim_hold *hold)
{
    struct claim *claim = find(process_of(tid));

    if (!claim)
        return -ENOENT;
    *hold = (struct claim_hold){.claim = claim, .tid = tid};
    int r = claim->hold(claim, deadline_ns, hold);
    if (r < 0)
        claim_unref(claim);
    return r;
}

void claim_release(struct claim_hold *hold)
{
    struct claim *claim = hold->claim;

    claim->release(claim, hold);
    claim_unref(claim);
}

int claim_pause(pid_t pid)
{
    struct claim *claim = find(pid);

    if (!claim)
        return 0;
    int r = claim->pause(claim);
    claim_unref(claim);
    return r;
}

void claim_go_on(pid_t pid)
{
    struct claim *claim = find(pid);

    if (!claim)
        return;
    claim->go_on(claim);
    claim_unref(claim);
}
