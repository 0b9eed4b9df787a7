/* Whether a thread's seccomp filters allow what an injection makes it call: a call that they don't may
 * kill it. Sources: seccomp(2), bpf(4) of the BSDs, the kernel's kernel/seccomp.c. */
#pragma once

#include "fs/text.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <sys/types.h>

#define SECCOMP_FILTERS_MAX 128 /* of one thread that are looked at */

/* What a filter answers to a system call: SECCOMP_RET_..., with its data. A program that breaks the rules
 * of seccomp_check_filter() answers SECCOMP_RET_KILL_PROCESS. */
uint32_t seccomp_evaluate(const struct sock_filter *filter, size_t n,
                          const struct seccomp_data *data);

/* Reads and judges the filters of a thread that the calling thread has stopped; code: the address where
 * most of the calls will come from. 0; -EPERM: they forbid something, or can't be read (CAP_SYS_ADMIN),
 * and why says what; -ESRCH; -ENOMEM. */
int seccomp_check(pid_t tid, uint64_t code, struct text *why);
