/* PTRACE_POKEUSER into struct user (arch/x86/kernel/ptrace.c of Linux). */
#include "fs/arch/debug_registers.h"

#include <errno.h>
#include <sys/ptrace.h>
#include <sys/user.h>

/* Bits of DR7 (Intel SDM volume 3, 18.2.4). */
#define DR7_ENABLE(slot) (1ul << (2 * (slot)))
#define DR7_KIND(slot) (16 + 4 * (slot))
#define DR7_WRITES 1ul
#define DR6_HITS 0xful

static int poke(pid_t tid, size_t number, unsigned long value)
{
    size_t at = offsetof(struct user, u_debugreg) + number * sizeof(unsigned long);

    return ptrace(PTRACE_POKEUSER, tid, (void *)at, (void *)value) < 0 ? -errno : 0;
}

static unsigned long length_bits(uint32_t length)
{
    return length == 8 ? 2 : length - 1; /* 1, 2, 4, 8: 00, 01, 11, 10 */
}

int debug_registers_set(pid_t tid, const struct debug_register *registers, size_t n)
{
    unsigned long dr7 = 0;
    int r = 0;

    for (size_t i = 0; i < n && r == 0; i++) {
        if (!registers[i].length)
            continue;
        dr7 |= DR7_ENABLE(i) | (DR7_WRITES | length_bits(registers[i].length) << 2) << DR7_KIND(i);
        r = poke(tid, i, registers[i].address);
    }
    return r == 0 ? poke(tid, 7, dr7) : r;
}

int debug_registers_clear(pid_t tid) { return poke(tid, 7, 0); }

unsigned debug_registers_hits(pid_t tid)
{
    size_t dr6 = offsetof(struct user, u_debugreg[6]);
    unsigned long hits = (unsigned long)ptrace(PTRACE_PEEKUSER, tid, (void *)dr6, NULL) & DR6_HITS;

    poke(tid, 6, 0);
    return (unsigned)hits;
}
