/* The kernel's view of a process's threads: /proc/PID/task (proc(5)). */
#pragma once

#include "fs/proc/blocking.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>

#define LWP_MAX 16384 /* threads of a process that are looked at */

/* Numbers of system calls. A timed wait that a stop interrupted goes on as restart_syscall, with
 * the arguments of the one that it continues. */
#define LWP_FUTEX SYS_futex
#define LWP_RESTART SYS_restart_syscall

#define LWP_ARGUMENTS 4 /* that are looked at */

struct lwp {
    pid_t tid;       /* in the daemon's pid namespace */
    pid_t inner_tid; /* in the process's own */
    char state;      /* field 3 of stat: R, S, D, T, t, Z, X */
    char comm[16];
    uint64_t user_ticks, system_ticks; /* sysconf(_SC_CLK_TCK) */
    int syscall;                       /* that it sleeps in; -1: it runs, or that isn't known */
    uint64_t args[LWP_ARGUMENTS];      /* of that system call, the first ones */
    struct blocking blocking;          /* what it waits for there */
    uint64_t ran; /* runs_number() before `syscall` was read; 0: not asked for, not known */
    bool moved;   /* it may have run since then: set by whoever read it, once that matters */
};

struct lwp_list {
    struct lwp *items; /* ascending by tid */
    size_t n;
    bool cut;
};

/* What is asked of each thread; each costs as much again as the one before. */
enum lwp_detail {
    LWP_STATES,   /* all but what follows */
    LWP_SYSCALLS, /* `syscall` and `args` too */
    LWP_RUNS,     /* and `ran` */
};

/* Lists the threads of pid. -ESRCH, -EACCES, -ENOMEM. The caller owns *out (lwp_list_deinit). */
int lwp_list_read(pid_t pid, enum lwp_detail detail, struct lwp_list *out);
/* Sets `moved` of those that have run since a list with LWP_RUNS was read, or may have. */
void lwp_list_see_moved(pid_t pid, struct lwp_list *list);
void lwp_list_deinit(struct lwp_list *list);

/* state of one thread now; 0 if it is gone. */
char lwp_state(pid_t pid, pid_t tid);

struct lwp *lwp_find(const struct lwp_list *list, pid_t tid);
/* lwp_find() by the number that the process itself knows the thread by. */
struct lwp *lwp_find_inner(const struct lwp_list *list, pid_t inner_tid);

/* Whether the process numbers its threads itself: it lives in a pid namespace below ours. */
bool lwp_foreign(pid_t pid);

/* The name of a system call by number ("futex"), or NULL. */
const char *syscall_name(int number);
