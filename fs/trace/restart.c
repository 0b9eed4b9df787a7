#include "fs/trace/restart.h"

#include "agent/base/cleanup.h"
#include "agent/base/cut_short.h"
#include "fs/proc/procfs.h"

#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>

#define SYSCALL_INSTRUCTION 0x050f /* 0f 05, little endian */

static uint64_t mask(const char *status, const char *name)
{
    const char *field = proc_status_field(status, name);
    return field ? strtoull(field, NULL, 16) : 0;
}

/* Whether a signal waits that the thread will handle as it goes on: then EINTR is the truth. */
static bool has_signal(pid_t tid)
{
    char status[8192];

    if (proc_read(tid, "status", status, sizeof status) <= 0)
        return true;
    return (mask(status, "SigPnd") | mask(status, "ShdPnd")) & ~mask(status, "SigBlk");
}

bool restart_sleeps(pid_t tid)
{
    char text[256], *end;

    if (proc_read(tid, "syscall", text, sizeof text) <= 0)
        return false;
    long number = strtol(text, &end, 10);
    return end > text && is_cut_short(number); /* else it says "running" */
}

void restart_interrupted(pid_t tid)
{
    struct user_regs_struct regs;
    struct iovec io = {&regs, sizeof regs};

    if (ptrace(PTRACE_GETREGSET, tid, (void *)(uintptr_t)NT_PRSTATUS, &io) < 0 ||
        (int64_t)regs.rax != -EINTR || !is_cut_short((long)regs.orig_rax) || has_signal(tid))
        return;
    errno = 0;
    long code = ptrace(PTRACE_PEEKTEXT, tid, (void *)(uintptr_t)(regs.rip - 2), NULL);
    if (errno || (code & 0xffff) != SYSCALL_INSTRUCTION)
        return;
    regs.rip -= 2;
    regs.rax = regs.orig_rax;
    ptrace(PTRACE_SETREGSET, tid, (void *)(uintptr_t)NT_PRSTATUS, &io);
}
