#include "fs/tree/pids.h"

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "fs/process/exited.h"
#include "fs/process/registry.h"

#include <errno.h>

static int pids_list(struct file_context *context, struct numbers *out)
{
    _cleanup_(process_list_deinit) struct process_list list = {0};

    int r = registry_list(context->registry, &list);
    for (size_t i = 0; r == 0 && i < list.n; i++) {
        unsigned pid = (unsigned)list.items[i]->pid;
        r = numbers_add(out, pid, steal_pointer(list.items[i]));
    }
    return r;
}

static int pids_find(struct file_context *context, unsigned value)
{
    return registry_lookup(context->registry, (pid_t)value, &context->process);
}

const struct naming pids = {NUMBER_PID, pids_list, pids_find};

static int exited_pids_list(struct file_context *context, struct numbers *out)
{
    _cleanup_(process_list_deinit) struct process_list list = {0};

    int r = exited_list(registry_exited(context->registry), monotonic_ns(), &list);
    for (size_t i = 0; r == 0 && i < list.n; i++)
        r = numbers_add(out, (unsigned)list.items[i]->pid, process_ref(list.items[i]));
    return r;
}

static int exited_pids_find(struct file_context *context, unsigned value)
{
    registry_notice(context->registry, (pid_t)value); /* it may have ended this very moment */
    context->process =
        exited_find(registry_exited(context->registry), (pid_t)value, monotonic_ns());
    return context->process ? 0 : -ENOENT;
}

const struct naming exited_pids = {NUMBER_PID, exited_pids_list, exited_pids_find};
