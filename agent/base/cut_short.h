/* System calls that a ptrace stop ends with EINTR although no signal came (signal(7), "Interruption
 * of system calls and library functions by stop signals"). */
#pragma once

#include "agent/arch/arch.h"

#include <stdbool.h>

static inline bool is_cut_short(long number)
{
    switch (number) {
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
    case SYS_epoll_pwait2:
    case SYS_semop:
    case SYS_semtimedop:
    case SYS_msgsnd:
    case SYS_msgrcv:
    case SYS_rt_sigtimedwait:
    case SYS_io_getevents:
    case SYS_io_pgetevents:
    case SYS_read:     /* inotify(7) */
    case SYS_recvfrom: /* from here on: sockets with SO_RCVTIMEO or SO_SNDTIMEO */
    case SYS_recvmsg:
    case SYS_recvmmsg:
    case SYS_accept:
    case SYS_accept4:
    case SYS_sendto:
    case SYS_sendmsg:
    case SYS_sendmmsg:
    case SYS_connect: return true;
    }
    return false;
}
