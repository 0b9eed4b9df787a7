/* One thread of a target, stopped and put to another use for a moment.
 *
 * All of it belongs to the thread of ours that stopped it (trace/tracer.h). At no point does the
 * target depend on us: once it executes the stub it restores itself when we are gone, and before
 * that it has not been changed. */
#pragma once

#include "agent/arch/arch.h"
#include "fs/base/interrupt.h"
#include "fs/inject/inject_abi.h"

#include <stdbool.h>
#include <sys/types.h>

/* So long the stub may take to come back each time, without what it waits for a processor. */
#define BORROW_CALL_DEADLINE_NS 2000000000ull

struct borrow {
    pid_t tid;
    struct registers regs; /* as they are to be again */
    uint64_t mask;         /* of blocked signals, likewise */
    uint64_t since;        /* when it was asked to stop, CLOCK_MONOTONIC in ns */
    bool before;           /* as restart_before() has it */
    uint64_t block;        /* address of its struct bootstrap_block */
    bool was_stopped;      /* by a signal (job control), while it executed the stub */
    /* to be set before borrow_begin(): */
    uint64_t stub;        /* address of bootstrap_begin in the target */
    uint64_t deadline_ns; /* when the stub is waited for no longer, CLOCK_MONOTONIC in ns */
    const struct interrupt *interrupt;
};

/* Stops a thread. -EBUSY: another tracer has it; -EPERM: not allowed; -ESRCH: it is gone; -EAGAIN:
 * a signal came first, and was passed on; -ECANCELED: it is stopped by a signal (job control), and
 * stays so; -EDEADLK: it waits for an answer of this daemon; -ETIMEDOUT: it did not stop, and is
 * still traced: the calling thread must end. On failure but the last it runs as before. */
int borrow_stop(pid_t tid, struct borrow *out);
/* If it is about to see an EINTR that only stopping it has caused, has it enter its system
 * call again (trace/restart.h). */
void borrow_restart(struct borrow *borrow);
/* Whether its system call will go on by what the kernel keeps for that, one piece for each thread,
 * which some other system calls use too. */
bool borrow_needs_restart_block(const struct borrow *borrow);
/* Whether it is in a restartable sequence (rseq(2)), which must not go on after
 * anything else ran. */
bool borrow_in_sequence(const struct borrow *borrow);
/* Lets it go on as it was. Returns for how many nanoseconds it was kept. */
uint64_t borrow_release(struct borrow *borrow);

/* Writes the stub to an address of the target's code, of which nothing else is
 * used. -EIO, -ESRCH. */
int borrow_write_stub(const struct borrow *borrow, uint64_t addr);

/* Makes it execute the stub at borrow->stub and waits until it has mapped the shim or failed to.
 * block is what to put on its stack but `resume`, `extra` and `mask`; filled with what the stub
 * left. -EFAULT: its stack can't be written, and nothing happened, or not be read again, and it
 * restores itself; -ENOTRECOVERABLE: it met a fatal signal, which it got; -ETIMEDOUT, -EINTR: it
 * restores itself, and is still traced: the calling thread must end; -ESRCH. */
int borrow_begin(struct borrow *borrow, struct bootstrap_block *block);
/* Makes it go on in the stub, with `go`, until it is done or failed. Errors as before. */
int borrow_go(struct borrow *borrow, bool go, struct bootstrap_block *block);
/* To be called before borrow_restore() where the thread may have waited with a time, which a signal
 * that stops it (job control) has the kernel keep in the one piece that each thread has. Then its
 * own system call is entered anew, where it is told which that is: it may last longer, never
 * shorter. */
void borrow_enter_anew(struct borrow *borrow);
/* Puts everything back as it was when it stopped. To be followed by borrow_release(). */
void borrow_restore(const struct borrow *borrow);
