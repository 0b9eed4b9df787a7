/* The debug registers of a thread that this thread traces and that is stopped. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct debug_register {
    uint64_t address;
    uint32_t length; /* bytes, 1, 2, 4 or 8; 0: it watches nothing */
};

/* Has register i watch what registers[i] says. 0, or -errno: -ESRCH, -ENOSPC, -EOPNOTSUPP: this
 * program doesn't use those of the machine. */
int debug_registers_set(pid_t tid, const struct debug_register *registers, size_t n);
/* None of them watches anything any more. */
int debug_registers_clear(pid_t tid);
/* Bit i: register i was hit since this was last asked. */
unsigned debug_registers_hits(pid_t tid);
