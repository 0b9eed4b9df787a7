/* The registers of a thread that unwinding deals with, by their DWARF number. */
#pragma once

#include "agent/arch/arch.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    DW_FRAME = ARCH_DW_FRAME,   /* the frame pointer */
    DW_SP = ARCH_DW_SP,         /* the stack pointer */
    DW_PC = ARCH_DW_PC,         /* the program counter */
    DW_RETURN = ARCH_DW_RETURN, /* what call frame information gives the return address by */
    REGS_N = ARCH_DW_N,
};

struct native_regs {
    uint64_t value[REGS_N];
    uint64_t known; /* bit i: value[i] is known */
};

static inline bool regs_know(const struct native_regs *regs, unsigned reg)
{
    return regs->known >> reg & 1;
}

static inline void regs_put(struct native_regs *regs, unsigned reg, uint64_t value)
{
    regs->value[reg] = value;
    regs->known |= 1ull << reg;
}

static inline void regs_forget(struct native_regs *regs, unsigned reg)
{
    regs->known &= ~(1ull << reg);
}
