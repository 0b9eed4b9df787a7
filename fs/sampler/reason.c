#include "fs/sampler/reason.h"

#include "agent/arch/arch.h"
#include "agent/base/cleanup.h"
#include "fs/proc/lwp.h"

#include <stdio.h>
#include <string.h>

/* Calls that people know by another name than their own. */
static const struct {
    int number;
    const char *reason;
} known[] = {
    {SYS_futex, "futex"},
    {SYS_epoll_wait, "epoll"},
    {SYS_epoll_pwait, "epoll"},
    {SYS_epoll_pwait2, "epoll"},
    {SYS_poll, "poll"},
    {SYS_ppoll, "poll"},
    {SYS_select, "poll"},
    {SYS_pselect6, "poll"},
    {SYS_read, "io"},
    {SYS_write, "io"},
    {SYS_readv, "io"},
    {SYS_writev, "io"},
    {SYS_pread64, "io"},
    {SYS_pwrite64, "io"},
    {SYS_preadv, "io"},
    {SYS_pwritev, "io"},
    {SYS_recvfrom, "io"},
    {SYS_recvmsg, "io"},
    {SYS_sendto, "io"},
    {SYS_sendmsg, "io"},
    {SYS_connect, "io"},
    {SYS_accept, "io"},
    {SYS_accept4, "io"},
    {SYS_fsync, "io"},
    {SYS_fdatasync, "io"},
    {SYS_openat, "io"},
    {SYS_io_uring_enter, "io"},
    {SYS_nanosleep, "sleep"},
    {SYS_clock_nanosleep, "sleep"},
    {SYS_wait4, "wait"},
    {SYS_waitid, "wait"},
    {SYS_restart_syscall, "sleep"},
};

void sampler_reason(int syscall, char out[SAMPLER_REASON_MAX])
{
    const char *name = syscall < 0 ? "kernel" : syscall_name(syscall);

    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        if (known[i].number == syscall)
            name = known[i].reason;
    if (name)
        snprintf(out, SAMPLER_REASON_MAX, "[%s]", name);
    else
        snprintf(out, SAMPLER_REASON_MAX, "[syscall %d]", syscall);
}
