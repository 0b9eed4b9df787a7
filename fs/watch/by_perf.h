/* Watching by perf_event_open(2): the kernel itself sends SIGTRAP to the thread that has written.
 * Nothing of the target is ever stopped, new threads are watched from their birth on, and when this
 * daemon is killed all is disarmed. Sources: perf_event_open(2) (sigtrap, inherit_thread,
 * remove_on_exec: Linux 5.13), kernel/events/hw_breakpoint.c. */
#pragma once

#include "fs/watch/registers.h"

#include <linux/perf_event.h>

struct by_perf;

/* Opens an event of the kind that sends SIGTRAP in each thread, or, tid above 0, in that one;
 * attr->inherit: in those that they make, too. unblocked: not in threads that block SIGTRAP, nor in
 * the agent's. Errors as by_perf_arm(). */
int by_perf_open(pid_t pid, pid_t tid, const struct perf_event_attr *attr, bool unblocked,
                 struct by_perf **out, struct text *why);
/* Arms all threads. -EPERM: perf_event_open(2) is not allowed; -EOPNOTSUPP: this kernel or machine
 * has nothing of the kind; -EBUSY: a thread has no debug register left; -EMFILE, -ENOMEM, -ESRCH,
 * -E2BIG; why says it in words. */
int by_perf_arm(pid_t pid, const struct watch_place *place, struct by_perf **out, struct text *why);
/* Arms threads that were being made meanwhile by others that weren't armed yet. To be called every
 * few milliseconds; after a while it has nothing more to do. */
void by_perf_follow(struct by_perf *perf);
/* Disarms; NULL is fine. */
void by_perf_free(struct by_perf *perf);
