/* Why a process can't be helped to an agent by ptrace, in words. */
#pragma once

#include "fs/base/text.h"

#include <stdbool.h>
#include <sys/types.h>

/* What can be known without stopping it: 0, or -ETIMEDOUT stopped, -EOPNOTSUPP, -EPERM. */
int refusal_find(pid_t pid, struct text *why);
/* Its threads are stopped by a signal. -ETIMEDOUT. */
int refusal_stopped(struct text *why);
/* Another tracer has the thread: -EBUSY, and who. 0: none has. why may be NULL. */
int refusal_traced(pid_t pid, pid_t tid, struct text *why);
/* ptrace(2) said EPERM. -EPERM, and what to do. */
int refusal_permission(struct text *why);
