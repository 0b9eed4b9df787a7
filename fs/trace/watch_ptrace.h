/* Watching by ptrace(2): one thread of ours traces all threads of the target for as long as anything is watched,
 * sets their debug registers, and makes each hit the same SIGTRAP that the other route gives (watch_perf.h).
 *
 * A tracer that is killed leaves the registers as they are, and a SIGTRAP that comes of them is forced upon
 * the target: so that it needs a handler from before the first register is set to after the last one is cleared. The
 * kernel takes that handler away when the thread that writes blocks SIGTRAP. Threads that do are not armed, and what
 * happens all the same is caught here: then all is disarmed, and it says so.
 *
 * A thread has one tracer at a time: who else in this daemon wants to stop one (tracer.h) or to borrow it
 * (borrow.h) asks here. So the watchers are known to the whole process, as errno is to a thread: an exception from "no
 * global mutable state", like requests.h. */
#pragma once

#include "fs/trace/watch.h"

#include <sys/user.h>

struct watch_tracer;

/* Traces all threads of a process, and those that it makes. -EBUSY: another tracer has one, and why says who; -EPERM:
 * not allowed; -ESRCH, -EAGAIN, -ENOMEM, -E2BIG. */
int watch_tracer_new(pid_t pid, struct watch_tracer **out, struct text *why);
/* Has a register of each thread watch a place; NULL: nothing. Returns once that is so: but for threads in an
 * uninterruptible system call, which come to it as they leave it, and for those that wait for this daemon. -EBUSY: no
 * register is free; -ECANCELED: SIGTRAP is not handled (any more), and nothing is armed; -ESRCH; why says it in words. Threads
 * that block SIGTRAP are left out. */
int watch_tracer_set(struct watch_tracer *tracer, unsigned slot, const struct watch_place *place, struct text *why);
/* To be called every few milliseconds while anything is armed: 0, or -ECANCELED, -ESRCH as above. *hits: how many
 * there were. */
int watch_tracer_attend(struct watch_tracer *tracer, uint64_t *hits);
/* Disarms all and lets them go. Where a thread can't be stopped that is left to its own thread, and goes on.
 * NULL is fine. */
void watch_tracer_free(struct watch_tracer *tracer);

/* A thread that a watcher keeps stopped for somebody else. */
struct watch_hold {
    struct watch_tracer *tracer;
    pid_t tid;
    bool stopped;                 /* and these are its registers: */
    struct user_regs_struct regs;
    struct watch_hold *next;
};

/* Stops a thread that a watcher of this daemon traces; hold must stay where it is until the release. -ENOENT: none
 * does; -ETIMEDOUT; -ESRCH. */
int watch_hold(pid_t tid, uint64_t deadline_ns, struct watch_hold *hold);
void watch_release(struct watch_hold *hold);

/* Has a process's watcher disarm its threads and let them go for a while; nothing where there is none.
 * -ETIMEDOUT: one can't be stopped. Each success is to be followed by watch_go_on(). */
int watch_pause(pid_t pid);
void watch_go_on(pid_t pid);
