#include "fs/trace/callers.h"

#include "agent/base/cleanup.h"

/* Never longer than the number of the loop's threads plus the blocked readers. */
static struct {
    pthread_mutex_t lock;
    struct request *first;
} requests = {.lock = PTHREAD_MUTEX_INITIALIZER};

void request_begin(struct request *request, pid_t tid)
{
    *request = (struct request){.tid = tid};
    if (!tid)
        return;
    _guard_mutex_(&requests.lock);
    request->next = requests.first;
    if (request->next)
        request->next->previous = request;
    requests.first = request;
}

void request_end(struct request *request)
{
    if (!request->tid)
        return;
    _guard_mutex_(&requests.lock);
    if (request->next)
        request->next->previous = request->previous;
    if (request->previous)
        request->previous->next = request->next;
    else
        requests.first = request->next;
    request->tid = 0;
}

bool requests_waiting(pid_t tid)
{
    _guard_mutex_(&requests.lock);
    for (const struct request *r = requests.first; r; r = r->next)
        if (r->tid == tid)
            return true;
    return false;
}
