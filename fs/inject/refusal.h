/* Why a process can't be helped to an agent by ptrace, in words. */
#pragma once

#include "fs/remote/moment/target.h"

/* What can be known without stopping it: 0, or -ETIMEDOUT stopped,
 * -EOPNOTSUPP, -EPERM, -EBUSY. */
int refusal_find(pid_t pid, struct text *why);
/* Whether it is between vfork(2) and its exec: what was done to it would be done to its parent.
 * -EBUSY; 0: it isn't; -ESRCH. why may be NULL. */
int refusal_shared(pid_t pid, struct text *why);
/* Whether all is as it was found, once a thread is stopped. -ESRCH: it executes another program
 * now; -EBUSY as above. */
int refusal_changed(const struct target *target, struct text *why);
/* Whether it may have a file of so many bytes: where it may not (RLIMIT_FSIZE), trying could end it
 * by SIGXFSZ. -EFBIG, and what to do; 0: it may, or that isn't known. */
int refusal_file_size(pid_t pid, uint64_t bytes, struct text *why);
/* Says that a process's threads are stopped by a signal. -ETIMEDOUT. */
int refusal_stopped(struct text *why);
/* Another tracer has the thread: -EBUSY, and who. 0: none has. why may be NULL. */
int refusal_traced(pid_t pid, pid_t tid, struct text *why);
/* Whether what has it, or has just had it, is a daemon of ours that stops threads for a moment
 * only. */
bool refusal_traced_briefly(pid_t pid, pid_t tid);
/* Words for what refuses where neither a missing right nor Yama does, and how a container gets that
 * capability: "SYS_PTRACE". */
void refusal_sandbox(const char *capability, struct text *out);
/* Tracing isn't allowed (trace/tracer.h). -EPERM; which rule that is, and what to do. */
int refusal_permission(struct text *why);
