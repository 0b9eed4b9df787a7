#include "fs/pids.h"

#include "fs/cleanup.h"
#include "fs/registry.h"

static int pids_list(struct file_context *context, struct numbers *out)
{
    _cleanup_free_ struct process **processes = NULL;
    size_t n;

    int r = registry_list(context->registry, &processes, &n);
    if (r < 0)
        return r;
    for (size_t i = 0; i < n; i++) {
        int added = numbers_add(out, (unsigned)processes[i]->pid, processes[i]);
        r = r < 0 ? r : added;
    }
    return r;
}

static int pids_find(struct file_context *context, unsigned value)
{
    return registry_lookup(context->registry, (pid_t)value, &context->process);
}

const struct naming pids = {NUMBER_PID, pids_list, pids_find};
