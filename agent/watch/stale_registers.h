/* Debug registers that a daemon armed by ptrace(2) and left so when it was killed: each write to
 * what they watch is a SIGTRAP, which our handler ignores, and slow. */
#pragma once

#include <stdint.h>

/* Clears them in all threads. A thread can't trace its own process: a process that shares our
 * memory does, and has ended when this returns, soon after until_ns (CLOCK_MONOTONIC) at the
 * latest. Stops each thread for some 20 us. Not in a signal handler, and one call at a time. 0:
 * none is armed any more; -ETIMEDOUT: a thread couldn't be stopped, another tracer has it, or this
 * process may not be traced by one of its own (prctl(2), PR_SET_DUMPABLE; Yama); -EAGAIN, -ENOMEM:
 * no process could be made. */
int stale_registers_clear(uint64_t until_ns);
