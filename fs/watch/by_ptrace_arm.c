/* Debug registers by ptrace(2). */
#include "fs/watch/by_ptrace.h"

#include "fs/arch/debug_registers.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <sys/ptrace.h>

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

static bool blocks_trap(pid_t tid, uint64_t *mask)
{
    return ptrace(PTRACE_GETSIGMASK, tid, (void *)sizeof *mask, mask) == 0 &&
           *mask >> (SIGTRAP - 1) & 1;
}

void by_ptrace_clear(const struct tracee *tracee) { debug_registers_clear(tracee->tid); }

/* False: none is wanted. */
static bool wanted_registers(const struct by_ptrace *tracer,
                             struct debug_register out[PROTO_WATCHES_MAX])
{
    bool any = false;

    for (unsigned i = 0; i < PROTO_WATCHES_MAX; i++) {
        out[i] = (struct debug_register){tracer->own[i].address, tracer->own[i].length};
        any = any || out[i].length;
    }
    return any;
}

void by_ptrace_apply(struct by_ptrace *tracer, struct tracee *tracee)
{
    struct debug_register wanted[PROTO_WATCHES_MAX];
    uint64_t mask;

    if (tracee->version == tracer->own_version && !tracee->calls)
        return;
    by_ptrace_clear(tracee);
    bool any = wanted_registers(tracer, wanted);
    if (any && blocks_trap(tracee->tid, &mask)) {
        if (!tracee->calls && !tracee->blocks)
            tracee->calls = CALLS_MAX;
        else if (tracee->calls)
            tracee->calls--;
        tracee->blocks = !tracee->calls;
        if (tracee->blocks)
            tracee->version = tracer->own_version;
        return;
    }
    int r = any ? debug_registers_set(tracee->tid, wanted, PROTO_WATCHES_MAX) : 0;
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
        if (infos[i].si_signo == SIGTRAP &&
            (infos[i].si_code == TRAP_HWBKPT || infos[i].si_code == TRAP_BRKPT))
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

/* Of a thread that has stopped for a SIGTRAP. */
static bool is_unnamed(pid_t tid, const siginfo_t *info)
{
    struct registers registers;

    if (info->si_code != TRAP_BRKPT || registers_read(tid, &registers) < 0)
        return false;
    errno = 0;
    long last =
        ptrace(PTRACE_PEEKTEXT, tid, (void *)(uintptr_t)(registers_pc(&registers) - 1), NULL);
    return !errno && arch_is_unnamed_hit((uint8_t)last);
}

int by_ptrace_hit(struct by_ptrace *tracer, struct tracee *tracee, bool *unhandled)
{
    siginfo_t info;

    *unhandled = false;
    if (ptrace(PTRACE_GETSIGINFO, tracee->tid, NULL, &info) < 0)
        return SIGTRAP;
    bool unnamed = is_unnamed(tracee->tid, &info);
    if (info.si_code != TRAP_HWBKPT && !unnamed)
        return SIGTRAP;
    unsigned hits = debug_registers_hits(tracee->tid);
    while (hits && !tracer->own[__builtin_ctz(hits)].length)
        hits &= hits - 1;
    *unhandled = !watch_handled(tracer->stat);
    if (*unhandled)
        block_again(tracee->tid);
    if (unnamed && !*unhandled)
        return SIGTRAP; /* the agent's handler knows it */
    unsigned slot = hits ? (unsigned)__builtin_ctz(hits) : 0;
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
