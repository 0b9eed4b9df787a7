/* Signals that end the process: SIGSEGV, SIGABRT, SIGBUS, SIGFPE.
 *
 * A handler of ours stands in front of what was there. It writes a row, tells the daemon, if one is there, and waits for it
 * to have taken down what there is to see, for at most PROTO_CRASH_NS; then all goes on as it would have without it: the
 * program's handler is called, or the signal ends the process, with the same status, siginfo and core. Where the stack
 * has overflowed, it runs on the alternate stack of the thread, if that has one; without, the kernel ends the process at once. */
#pragma once

#include <stdbool.h>

/* Puts the handler in front, also of a handler that has taken its place without going on to it. */
void fatal_on(void);
/* Takes it out, where nobody has put another one in front of it: that may go on to it. */
void fatal_off(void);
/* The daemon has seen it, or has gone. Any thread. */
void fatal_seen(void);
/* Whether a handler may go on to ours, or a thread is in it. */
bool fatal_remains(void);
/* In a child after fork. */
void fatal_forget(void);
