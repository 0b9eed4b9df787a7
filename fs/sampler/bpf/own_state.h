/* Finds where each thread of a process keeps its own thread state: the words of its TLS that hold
 * it.
 *
 * It is learned by looking at the threads that there are, and what a thread has there is believed
 * only if it says that it is this thread's (program.bpf.c). So a wrong place costs time, not truth.
 * For glibc it is the slot of a pthread key, and from 3.15 on a TLS variable. */
#pragma once

#include "fs/remote/moment/target.h"
#include "fs/sampler/bpf/records.h"

/* Fills in tls[], offsets from the fs base, the best first, then 0, and `gil`, the address of the
 * main interpreter's. The caller holds target->lock. -EAGAIN: no thread has one now, it may have
 * later; -ENOENT: it isn't found where it was looked for; -ESRCH, -EPERM, -ENOMEM. */
int own_state_learn(struct target *target, int32_t tls[KERNEL_TLS_MAX], uint64_t *gil);
