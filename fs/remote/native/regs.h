/* The registers of a thread that unwinding deals with, by their DWARF number (System V ABI for
 * x86-64, figure 3.36). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    DW_RAX = 0,
    DW_RBX = 3,
    DW_RBP = 6,
    DW_RSP = 7,
    DW_R12 = 12,
    DW_RIP = 16,
    REGS_N = 17,
};

struct native_regs {
    uint64_t value[REGS_N];
    uint32_t known; /* bit i: value[i] is known */
};

static inline bool regs_know(const struct native_regs *regs, unsigned reg)
{
    return regs->known >> reg & 1;
}

static inline void regs_put(struct native_regs *regs, unsigned reg, uint64_t value)
{
    regs->value[reg] = value;
    regs->known |= 1u << reg;
}

static inline void regs_forget(struct native_regs *regs, unsigned reg)
{
    regs->known &= ~(1u << reg);
}
