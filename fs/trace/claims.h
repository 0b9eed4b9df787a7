/* Who of this daemon traces a whole process for long, and how somebody else gets at its threads.
 *
 * A thread has one tracer at a time. Whoever traces all threads of a process for as long as it
 * likes claims that process; who wants to stop a thread for a moment (trace/tracer.h) or to borrow
 * one (inject/inject.h) asks the claim for it, and knows nothing of what it is made for.
 *
 * The claims belong to the daemon as a whole, as errno belongs to a thread: an exception from "no
 * global mutable state", like trace/callers.h. */
#pragma once

#include "agent/arch/arch.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A thread that the claimant keeps stopped for somebody else. */
struct claim_hold {
    struct claim *claim; /* a reference */
    pid_t tid;
    bool stopped; /* and these are its registers: */
    struct registers regs;
    struct claim_hold *next; /* the claimant's own */
};

/* A claim; a member of what the claimant has for it. The functions do what claim_hold() and its
 * likes below say, and are called by any thread, with a reference and without a lock. */
struct claim {
    pid_t pid;
    atomic_uint refs; /* the claimant has the first */
    int (*hold)(struct claim *claim, uint64_t deadline_ns, struct claim_hold *hold);
    void (*release)(struct claim *claim, struct claim_hold *hold);
    int (*pause)(struct claim *claim);
    void (*go_on)(struct claim *claim);
    void (*free)(struct claim *claim); /* nobody refers to it any more */
    struct claim *next;
};

/* Lets others find it. */
void claim_enter(struct claim *claim);
/* From now on nobody finds it; who has done so already has a reference. Fine if it isn't there. */
void claim_leave(struct claim *claim);
struct claim *claim_ref(struct claim *claim);
void claim_unref(struct claim *claim);

/* Whether anybody claims the process. */
bool claim_exists(pid_t pid);
/* Stops a thread whose process is claimed; hold must stay where it is until the release. -ENOENT:
 * nobody claims it; -ETIMEDOUT; -ESRCH. */
int claim_hold(pid_t tid, uint64_t deadline_ns, struct claim_hold *hold);
void claim_release(struct claim_hold *hold);

/* Has who claims a process let go of its threads for a while; nothing where nobody does.
 * -ETIMEDOUT: one can't be stopped. Each success is to be followed by claim_go_on(). */
int claim_pause(pid_t pid);
void claim_go_on(pid_t pid);
