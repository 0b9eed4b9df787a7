/* Debug registers by ptrace(2): PTRACE_POKEUSER into struct user (arch/x86/kernel/ptrace.c). */
#include "fs/watch/by_ptrace.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stddef.h>
#include <sys/ptrace.h>

/* Bits of DR7 (Intel SDM volume 3, 18.2.4). */
#define DR7_ENABLE(slot) (1ul << (2 * (slot)))
#define DR7_KIND(slot) (16 + 4 * (slot))
#define DR7_WRITES 1ul
#define DR6_HITS 0xful

/* A new thread of glibc's, and one in posix_spawn(), fork() or abort(), has all signals
 * blocked for a few system calls. */
#define CALLS_MAX 16
/* Signals of a thread's own that wait for it: a write's comes before it goes on, so
 * that it is among the first. */
#define PENDING_MAX 32

#ifndef TRAP_PERF
#define TRAP_PERF 6
#endif

/* siginfo_t of TRAP_PERF as the kernel has it
 * (include/uapi/asm-generic/siginfo.h): libc's may not know it. */
union trap {
    siginfo_t info;
    struct {
        int signal, error, code, zero;
        uint64_t address;
        uint64_t data;
        uint32_t type, flags;
    };
};

static int poke(pid_t tid, unsigned number, unsigned long value)
{
    size_t at = offsetof(struct user, u_debugreg) + number * sizeof(unsigned long);

    return ptrace(PTRACE_POKEUSER, tid, (void *)at, (void *)value) < 0 ? -errno : 0;
}

static unsigned long length_bits(uint32_t length)
{
    return length == 8 ? 2 : length - 1; /* 1, 2, 4, 8: 00, 01, 11, 10 */
}

static bool blocks_trap(pid_t tid, uint64_t *mask)
{
    return ptrace(PTRACE_GETSIGMASK, tid, (void *)sizeof *mask, mask) == 0 &&
           *mask >> (SIGTRAP - 1) & 1;
}

void by_ptrace_clear(const struct tracee *tracee) { poke(tracee->tid, 7, 0); }

static unsigned long wanted_dr7(const struct by_ptrace *tracer)
{
    unsigned long dr7 = 0;

    for (unsigned i = 0; i < PROTO_WATCHES_MAX; i++)
        if (tracer->own[i].length)
            dr7 |= DR7_ENABLE(i) | (DR7_WRITES | length_bits(tracer->own[i].length) << 2)
                                       << DR7_KIND(i);
    return dr7;
}

static int set_registers(const struct by_ptrace *tracer, pid_t tid, unsigned long dr7)
{
    int r = 0;

    for (unsigned i = 0; i < PROTO_WATCHES_MAX && r == 0; i++)
        if (tracer->own[i].length)
            r = poke(tid, i, tracer->own[i].address);
    return r == 0 ? poke(tid, 7, dr7) : r;
}

void by_ptrace_apply(struct by_ptrace *tracer, struct tracee *tracee)
{
    unsigned long dr7 = wanted_dr7(tracer);
    uint64_t mask;

    if (tracee->version == tracer->own_version && !tracee->calls)
        return;
    by_ptrace_clear(tracee);
    if (dr7 && blocks_trap(tracee->tid, &mask)) {
        if (!tracee->calls && !tracee->blocks)
            tracee->calls = CALLS_MAX;
        else if (tracee->calls)
            tracee->calls--;
        tracee->blocks = !tracee->calls;
        if (tracee->blocks)
            tracee->version = tracer->own_version;
        return;
    }
    int r = set_registers(tracer, tracee->tid, dr7);
    if (r < 0 && r != -ESRCH) {
        atomic_store(&tracer->refused_tid, tracee->tid);
        atomic_store(&tracer->refused, r);
    }
    tracee->calls = 0;
    tracee->blocks = false;
    tracee->version = tracer->own_version;
}

bool by_ptrace_hit_waits(const struct tracee *tracee)
{
    struct __ptrace_peeksiginfo_args args = {.nr = PENDING_MAX};
    siginfo_t infos[PENDING_MAX];

    long n = ptrace(PTRACE_PEEKSIGINFO, tracee->tid, &args, infos);
    for (long i = 0; i < n; i++)
        if (infos[i].si_signo == SIGTRAP && infos[i].si_code == TRAP_HWBKPT)
            return true;
    return false;
}

/* The kernel has unblocked SIGTRAP to force it. Where that was the only signal not blocked
 * it is likely that all were. */
static void block_again(pid_t tid)
{
    uint64_t kept = 1ull << (SIGKILL - 1) | 1ull << (SIGSTOP - 1), trap = 1ull << (SIGTRAP - 1);
    uint64_t mask;

    if (ptrace(PTRACE_GETSIGMASK, tid, (void *)sizeof mask, &mask) < 0 ||
        (mask | kept | trap) != ~0ull)
        return;
    mask |= trap;
    ptrace(PTRACE_SETSIGMASK, tid, (void *)sizeof mask, &mask);
}

int by_ptrace_hit(struct by_ptrace *tracer, struct tracee *tracee, bool *unhandled)
{
    siginfo_t info;

    *unhandled = false;
    if (ptrace(PTRACE_GETSIGINFO, tracee->tid, NULL, &info) < 0 || info.si_code != TRAP_HWBKPT)
        return SIGTRAP;
    size_t dr6 = offsetof(struct user, u_debugreg[6]);
    unsigned long hits = (unsigned long)ptrace(PTRACE_PEEKUSER, tracee->tid, (void *)dr6, NULL) &
                         DR6_HITS;
    poke(tracee->tid, 6, 0);
    while (hits && !tracer->own[__builtin_ctzl(hits)].length)
        hits &= hits - 1;
    *unhandled = !watch_handled(tracer->stat);
    if (*unhandled)
        block_again(tracee->tid);
    unsigned slot = hits ? (unsigned)__builtin_ctzl(hits) : 0;
    if (*unhandled || !hits || tracee->version < tracer->since[slot])
        return 0; /* a register that an earlier tracer left, or one that is being taken back */
    const struct watch_place *place = &tracer->own[slot];
    union trap told = {.info = {0}};
    told.signal = SIGTRAP;
    told.code = TRAP_PERF;
    told.address = place->address;
    told.data = place->data;
    told.type = PERF_TYPE_BREAKPOINT;
    if (ptrace(PTRACE_SETSIGINFO, tracee->tid, NULL, &told.info) < 0)
        return 0;
    atomic_fetch_add(&tracer->hits, 1);
    return SIGTRAP;
}
