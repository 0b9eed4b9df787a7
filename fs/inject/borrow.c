#include "fs/inject/borrow.h"

#include "agent/base/clock.h"
#include "fs/proc/lwp.h"
#include "fs/proc/procfs.h"
#include "fs/trace/callers.h"
#include "fs/trace/restart.h"
#include "fs/trace/tracer.h"

#include <errno.h>
#include <linux/rseq.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

#define WORD sizeof(uint64_t)

#define LOOK_NS 50000000ull /* between looks at a thread that doesn't come back */

static int detach(pid_t tid, int signal)
{
    return ptrace(PTRACE_DETACH, tid, NULL, (void *)(uintptr_t)signal) < 0 ? -errno : 0;
}

static int read_state(struct borrow *borrow)
{
    int r = registers_read(borrow->tid, &borrow->regs);

    if (r == 0 &&
        ptrace(PTRACE_GETSIGMASK, borrow->tid, (void *)sizeof borrow->mask, &borrow->mask) < 0)
        r = -errno;
    return r;
}

/* Waits until it has stopped. One that only gets no processor stops before it executes anything; if
 * it were left alone now, it would take that for a signal (trace/restart.h). */
static int wait_stopped(const struct borrow *borrow, int *status)
{
    int r = tracer_wait(borrow->tid, TRACER_STOP_DEADLINE_NS, status);
    return r == -ETIMEDOUT
               ? tracer_wait_ready(borrow->tid, borrow->since + BORROW_CALL_DEADLINE_NS, status)
               : r;
}

int borrow_stop(pid_t tid, struct borrow *out)
{
    struct borrow borrow = {.tid = tid, .since = monotonic_ns()};
    int status;

    if (callers_has(tid))
        return -EDEADLK;
    int r = tracer_seize(tid, 0, TRACER_STOP_DEADLINE_NS);
    if (r < 0)
        return r;
    borrow.before = restart_before(tid);
    if (ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) < 0 && errno != ESRCH)
        return -errno; /* ESRCH: it is dying, and its end is to be waited for */
    r = wait_stopped(&borrow, &status);
    if (r < 0)
        return r == -EDEADLK ? -ETIMEDOUT : r;
    if (status >> 8 != PTRACE_EVENT_STOP) {
        detach(tid, status);
        return -EAGAIN;
    }
    if (status != (PTRACE_EVENT_STOP << 8 | SIGTRAP)) {
        detach(tid, 0);
        return -ECANCELED;
    }
    r = read_state(&borrow);
    if (r < 0) {
        detach(tid, 0);
        return r;
    }
    *out = borrow;
    return 0;
}

void borrow_restart(struct borrow *borrow)
{
    restart_interrupted(borrow->tid, borrow->before);
    read_state(borrow);
}

bool borrow_needs_restart_block(const struct borrow *borrow)
{
    return registers_need_restart_block(&borrow->regs);
}

static bool read_memory(const struct borrow *borrow, uint64_t addr, void *data, size_t size)
{
    struct iovec local = {data, size}, remote = {(void *)(uintptr_t)addr, size};
    return process_vm_readv(borrow->tid, &local, 1, &remote, 1, 0) == (ssize_t)size;
}

bool borrow_in_sequence(const struct borrow *borrow)
{
    struct __ptrace_rseq_configuration config;
    struct rseq area;
    struct rseq_cs section;

    if (ptrace(PTRACE_GET_RSEQ_CONFIGURATION, borrow->tid, (void *)sizeof config, &config) < 0 ||
        !config.rseq_abi_pointer)
        return false; /* kernel before 5.13, or it has none */
    if (!read_memory(borrow, config.rseq_abi_pointer, &area, sizeof area))
        return true;
    if (!area.rseq_cs)
        return false;
    return !read_memory(borrow, area.rseq_cs, &section, sizeof section) ||
           registers_pc(&borrow->regs) - section.start_ip < section.post_commit_offset;
}

uint64_t borrow_release(struct borrow *borrow)
{
    detach(borrow->tid, 0);
    return monotonic_ns() - borrow->since;
}

int borrow_write_stub(const struct borrow *borrow, uint64_t addr)
{
    size_t size = (size_t)(bootstrap_end - bootstrap_begin);

    for (size_t i = 0; i < size; i += WORD) {
        uint64_t word;
        memcpy(&word, bootstrap_begin + i, WORD);
        if (ptrace(PTRACE_POKETEXT, borrow->tid, (void *)(addr + i), (void *)word) < 0)
            return -errno;
    }
    return 0;
}

/* ---- executing the stub ---- */

/* A signal that the target doesn't handle and whose default is to be ignored: it does nothing when
 * there is no tracer any more. */
static int harmless_signal(pid_t tid)
{
    static const int candidates[] = {SIGURG, SIGWINCH, SIGCHLD};
    char status[8192];

    if (proc_read(tid, "status", status, sizeof status) <= 0)
        return SIGURG;
    uint64_t caught = proc_status_signals(status, "SigCgt");
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++)
        if (!(caught >> (candidates[i] - 1) & 1))
            return candidates[i];
    return SIGURG;
}

/* Copies the block by ptrace(2), which touches nothing but the memory of a stopped tracee: under
 * its number there may be a thread that executes another program by now. */
static int copy_block(const struct borrow *borrow, struct bootstrap_block *block, bool write)
{
    uint64_t *words = (uint64_t *)block;

    for (size_t i = 0; i < sizeof *block / WORD; i++) {
        void *at = (void *)(borrow->block + i * WORD);
        errno = 0;
        if (write)
            ptrace(PTRACE_POKEDATA, borrow->tid, at, (void *)words[i]);
        else
            words[i] = (uint64_t)ptrace(PTRACE_PEEKDATA, borrow->tid, at, NULL);
        if (errno)
            return errno == EIO ? -EFAULT : -errno;
    }
    return 0;
}

static int set_mask(const struct borrow *borrow, uint64_t mask)
{
    return ptrace(PTRACE_SETSIGMASK, borrow->tid, (void *)sizeof mask, &mask) < 0 ? -errno : 0;
}

static bool in_stub(const struct borrow *borrow)
{
    struct registers regs;

    return registers_read(borrow->tid, &regs) == 0 &&
           registers_pc(&regs) - borrow->stub < (uint64_t)(bootstrap_end - bootstrap_begin);
}

/* Waits for its next stop. *ready: when it was last seen to have a processor, or to wait for one.
 * Giving up then would not help it: it has to execute the rest of the stub in any case. */
static int wait_stop(const struct borrow *borrow, uint64_t *ready, int *status)
{
    for (;;) {
        int r = tracer_wait(borrow->tid, LOOK_NS, status);
        if (r != -ETIMEDOUT)
            return r;
        if (interrupted(borrow->interrupt))
            return -EINTR;
        uint64_t now = monotonic_ns();
        if (lwp_state(borrow->tid, borrow->tid) == 'R')
            *ready = now;
        if (now - *ready >= BORROW_CALL_DEADLINE_NS || now >= borrow->deadline_ns)
            return -ETIMEDOUT;
    }
}

/* Lets it run until it has raised its signal in a later state than `state`. */
static int run_stub(struct borrow *borrow, uint64_t state, struct bootstrap_block *block)
{
    uint64_t ready = monotonic_ns();
    int signal = (int)block->signal, pass = 0;

    for (;;) {
        int status;
        if (ptrace(PTRACE_CONT, borrow->tid, NULL, (void *)(uintptr_t)pass) < 0)
            return -errno;
        int r = wait_stop(borrow, &ready, &status);
        if (r < 0)
            return r;
        pass = 0;
        borrow->was_stopped |= status >> 8 == PTRACE_EVENT_STOP || status == SIGSTOP;
        if (status >> 8 == PTRACE_EVENT_STOP)
            continue; /* job control stops it: once it is let go */
        if (status == signal && in_stub(borrow)) {
            r = copy_block(borrow, block, false);
            if (r < 0)
                return r;
            if (block->state > state)
                return 0;
        }
        /* all others are blocked: its own fault, or somebody else's kill */
        if (status != signal && status != SIGSTOP) {
            detach(borrow->tid, status);
            return -ENOTRECOVERABLE;
        }
        pass = status;
    }
}

int borrow_begin(struct borrow *borrow, struct bootstrap_block *block)
{
    struct registers regs = borrow->regs;

    registers_resume(&regs);
    borrow->block = registers_sp(&regs) - ARCH_RED_ZONE - sizeof *block;
    block->resume = registers_pc(&regs);
    block->extra = registers_for_stub(&borrow->regs);
    block->mask = borrow->mask;
    block->signal = (uint64_t)harmless_signal(borrow->tid);
    block->state = BOOTSTRAP_BEGUN;
    block->go = 0;
    int r = copy_block(borrow, block, true);
    if (r < 0)
        return r;
    registers_redirect(&regs, borrow->stub, borrow->block);
    r = registers_write(borrow->tid, &regs); /* from here on it restores itself */
    if (r == 0)
        r = set_mask(borrow, ~(1ull << (block->signal - 1)));
    return r == 0 ? run_stub(borrow, BOOTSTRAP_BEGUN, block) : r;
}

int borrow_go(struct borrow *borrow, bool go, struct bootstrap_block *block)
{
    uint64_t at = borrow->block + BLOCK_GO;

    if (ptrace(PTRACE_POKEDATA, borrow->tid, (void *)at, (void *)(uintptr_t)go) < 0)
        return -errno;
    return run_stub(borrow, BOOTSTRAP_MAPPED, block);
}

/* Whether a stop may have been taken back before it came about, which wakes a thread all the same:
 * what did that waits then, as all signals do. */
static bool was_continued(pid_t tid)
{
    char status[8192];

    return proc_read(tid, "status", status, sizeof status) <= 0 ||
           (proc_status_signals(status, "SigPnd") | proc_status_signals(status, "ShdPnd")) >>
                   (SIGCONT - 1) &
               1;
}

void borrow_enter_anew(struct borrow *borrow)
{
    if (borrow_needs_restart_block(borrow) && (borrow->was_stopped || was_continued(borrow->tid)))
        registers_enter_anew(borrow->tid, &borrow->regs);
}

/* Restores in this order: if we are killed in between, the thread still executes the stub, which
 * restores the rest. */
void borrow_restore(const struct borrow *borrow)
{
    set_mask(borrow, borrow->mask);
    registers_write(borrow->tid, &borrow->regs);
}
