#include "fs/trace/restart.h"

#include "agent/arch/arch.h"
#include "agent/base/cleanup.h"
#include "agent/base/cut_short.h"
#include "fs/proc/procfs.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Whether a signal waits that the thread will handle as it goes on: then EINTR is the truth. */
static bool has_signal(pid_t tid)
{
    char status[8192];

    if (proc_read(tid, "status", status, sizeof status) <= 0)
        return true;
    return (proc_status_signals(status, "SigPnd") | proc_status_signals(status, "ShdPnd")) &
           ~proc_status_signals(status, "SigBlk");
}

bool restart_sleeps(pid_t tid)
{
    char text[256], *end;

    if (proc_read(tid, "syscall", text, sizeof text) <= 0)
        return false;
    long number = strtol(text, &end, 10);
    return end > text && is_cut_short(number); /* else it says "running" */
}

/* Where registers don't tell it, only one that slept is known not to have had a signal before: from
 * then on that would have been a stop of its own. */
bool restart_before(pid_t tid) { return ARCH_TELLS_INTERRUPTION || restart_sleeps(tid); }

void restart_interrupted(pid_t tid, bool before)
{
    struct registers regs;

    if (!before || registers_read(tid, &regs) < 0 || registers_result(&regs) != -EINTR ||
        !is_cut_short((long)registers_syscall(&regs)) || has_signal(tid) ||
        !registers_interrupted(tid, &regs))
        return;
    registers_enter_again(&regs);
    registers_write(tid, &regs);
}
