/* Whether a thread's seccomp filters allow what an injection makes it call: a call that they don't
 * may kill it. Sources: seccomp(2), bpf(4) of the BSDs, the kernel's kernel/seccomp.c. */
#pragma once

#include "fs/base/text.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SECCOMP_FILTERS_MAX 128 /* of one thread that are looked at */

/* What a filter answers to a system call: SECCOMP_RET_..., with its data. A program that breaks the
 * rules of seccomp_check_filter() answers SECCOMP_RET_KILL_PROCESS. */
uint32_t seccomp_evaluate(const struct sock_filter *filter, size_t n,
                          const struct seccomp_data *data);

/* What a thread is made to do. */
enum seccomp_use {
    SECCOMP_LOAD, /* to load an agent, and what that does */
    /* to have debug registers set by ptrace: its agent may have to clear them
     * (agent/watch/stale_registers.c) */
    SECCOMP_WATCH,
    /* to have samples taken in a handler of SIGTRAP (agent/sample/sample.c) */
    SECCOMP_SAMPLE,
};

/* Reads and judges the filters of a thread that the calling thread has stopped; code: the address
 * where most of the calls will come from. 0; -EPERM: they forbid something, or can't be read
 * (CAP_SYS_ADMIN), and why says what; -ESRCH; -ENOMEM. */
int seccomp_check(pid_t tid, enum seccomp_use use, uint64_t code, struct text *why);
/* Whether a process has filters at all; true where that can't be seen. */
bool seccomp_has_filters(pid_t tid);
/* How many filters a thread has. -EPERM: strict mode, which lets nothing through; -EOPNOTSUPP:
 * the kernel doesn't say (before 5.9); -ESRCH. */
int seccomp_count(pid_t tid);
