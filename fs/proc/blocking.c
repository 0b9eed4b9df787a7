#include "fs/proc/blocking.h"

#include "agent/arch/arch.h"
#include "fs/proc/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#define ARGUMENTS 6

/* A pointer to a time: none means for ever. */
static bool is_timed(uint64_t pointer) { return pointer != 0; }
/* Milliseconds, as an int: less than 0 means for ever. */
static bool is_timed_ms(uint64_t ms) { return (int)ms >= 0; }

static void set_fd(struct blocking *out, enum blocking_kind kind, uint64_t fd)
{
    out->kind = kind;
    out->fd = (int)fd;
}

/* The kind of a wait; any: there is a descriptor to wait for. Without one time.sleep() sleeps so,
 * up to CPython 3.10. */
static enum blocking_kind or_sleep(enum blocking_kind kind, bool any)
{
    return any ? kind : BLOCKING_SLEEP;
}

static void set_poll(struct blocking *out, const uint64_t *argument, bool timed)
{
    out->kind = or_sleep(BLOCKING_POLL, argument[1]);
    out->address = argument[0];
    out->count = argument[1];
    out->timed = timed;
}

static void set_select(struct blocking *out, const uint64_t *argument)
{
    out->kind = or_sleep(BLOCKING_SELECT, argument[1] || argument[2] || argument[3]);
    out->count = argument[0];
    out->address = argument[1];
    out->writers = argument[2];
    out->timed = is_timed(argument[4]);
}

static void set_epoll(struct blocking *out, const uint64_t *argument, bool timed)
{
    set_fd(out, BLOCKING_EPOLL, argument[0]);
    out->timed = timed;
}

static void set_waitid(struct blocking *out, const uint64_t *argument)
{
    out->kind = BLOCKING_CHILD;
    if (argument[0] == P_PID)
        out->child = (pid_t)argument[1];
    if (argument[0] == P_PIDFD) {
        out->fd = (int)argument[1];
        out->pidfd = true;
    }
}

static void set_futex(struct blocking *out, const uint64_t *argument)
{
    out->kind = BLOCKING_FUTEX;
    out->address = argument[0];
    out->shared = !(argument[1] & FUTEX_PRIVATE_FLAG);
    out->timed = is_timed(argument[3]);
}

static void set_fcntl(struct blocking *out, const uint64_t *argument)
{
    if (argument[1] == F_SETLKW || argument[1] == F_OFD_SETLKW)
        set_fd(out, BLOCKING_FCNTL, argument[0]);
}

static void classify(struct blocking *out, const uint64_t *argument)
{
    switch (out->number) {
    case SYS_read:
    case SYS_pread64:
    case SYS_readv:
    case SYS_preadv:
    case SYS_preadv2:
    case SYS_recvfrom:
    case SYS_recvmsg: set_fd(out, BLOCKING_READ, argument[0]); break;
    case SYS_recvmmsg:
        set_fd(out, BLOCKING_READ, argument[0]);
        out->timed = is_timed(argument[4]);
        break;
    case SYS_write:
    case SYS_pwrite64:
    case SYS_writev:
    case SYS_pwritev:
    case SYS_pwritev2:
    case SYS_sendto:
    case SYS_sendmsg:
    case SYS_sendmmsg:
    case SYS_sendfile: set_fd(out, BLOCKING_WRITE, argument[0]); break;
    case SYS_accept:
    case SYS_accept4: set_fd(out, BLOCKING_ACCEPT, argument[0]); break;
    case SYS_connect: set_fd(out, BLOCKING_CONNECT, argument[0]); break;
    case SYS_poll: set_poll(out, argument, is_timed_ms(argument[2])); break;
    case SYS_ppoll: set_poll(out, argument, is_timed(argument[2])); break;
    case SYS_select:
    case SYS_pselect6: set_select(out, argument); break;
    case SYS_epoll_wait:
    case SYS_epoll_pwait: set_epoll(out, argument, is_timed_ms(argument[3])); break;
    case SYS_epoll_pwait2: set_epoll(out, argument, is_timed(argument[3])); break;
    case SYS_flock: set_fd(out, BLOCKING_FLOCK, argument[0]); break;
    case SYS_fcntl: set_fcntl(out, argument); break;
    case SYS_wait4:
        out->kind = BLOCKING_CHILD;
        out->child = (pid_t)argument[0] > 0 ? (pid_t)argument[0] : 0;
        break;
    case SYS_waitid: set_waitid(out, argument); break;
    case SYS_futex: set_futex(out, argument); break;
    case SYS_nanosleep:
    case SYS_clock_nanosleep:
        out->kind = BLOCKING_SLEEP;
        out->timed = true;
        break;
    case SYS_pause:
    case SYS_rt_sigsuspend: out->kind = BLOCKING_SLEEP; break;
    case SYS_rt_sigtimedwait:
        out->kind = BLOCKING_SLEEP;
        out->timed = is_timed(argument[2]);
        break;
    case SYS_restart_syscall: out->timed = true; break;
    }
}

bool blocking_parse(const char *line, struct blocking *out)
{
    uint64_t argument[ARGUMENTS];
    struct blocking parsed = {.number = -1, .fd = -1};
    char *at;

    *out = parsed;
    if (*line < '0' || *line > '9')
        return false;
    parsed.number = (int)strtol(line, &at, 10);
    for (int i = 0; i < ARGUMENTS; i++) {
        if (*at != ' ')
            return false;
        argument[i] = strtoull(at, &at, 16);
    }
    classify(&parsed, argument);
    *out = parsed;
    return true;
}

int blocking_read(pid_t pid, pid_t tid, struct blocking *out)
{
    char line[256];

    ssize_t n = proc_read_task(pid, tid, "syscall", line, sizeof line);
    if (n < 0)
        return (int)n;
    return blocking_parse(line, out) ? 0 : -EAGAIN;
}
