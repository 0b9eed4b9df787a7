#include "fs/process/control.h"

#include "fs/link/found.h"

#include <errno.h>

/* Whether the program itself asked for an agent: who does that wants to be controlled, whatever
 * Yama says of debuggers. */
static bool invites(struct process *process)
{
    struct target *target = process_held(process);
    struct found_agent found;

    bool runs = target && found_agent_find(&target->memory, &found) == 0 && found.running;
    target_unref(target);
    return runs &&
           (found.record.origin == ORIGIN_IMPORTED || found.record.origin == ORIGIN_STARTUP);
}

int look_may(const struct access *access, struct access_caller *caller, struct process *process)
{
    struct access_target left;

    if (process_left(process, &left)) {
        for (int i = 0; i < 3 && process_is_core(process); i++)
            left.gid[i] = caller->fsgid; /* whose a file is its owner alone says */
        return access_look_ended(access, caller, &left);
    }
    return access_look(access, caller, process->pid);
}

int look_may_all(const struct access *access, struct principals *principals,
                 struct process *process)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < principals->n; i++)
        r = look_may(access, &principals->items[i], process);
    return r;
}

int control_may(const struct access *access, struct access_caller *caller, struct process *process,
                struct text *why)
{
    int r = access_control(access, caller, process->pid, why);
    if (r == 0)
        r = access_sandbox(caller, process->pid, why);
    if (r < 0)
        return r;
    r = access_yama(access, caller, process->pid, why);
    if (r == -EPERM && invites(process)) {
        text_clear(why);
        r = 0;
    }
    return r;
}

int control_may_all(const struct access *access, struct principals *principals,
                    struct process *process, struct text *why)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < principals->n; i++)
        r = control_may(access, &principals->items[i], process, why);
    return r;
}
