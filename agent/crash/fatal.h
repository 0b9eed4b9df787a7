/* Signals that end the process: SIGSEGV, SIGABRT, SIGBUS, SIGFPE.
 *
 * Our handler stands in front of the program's. It writes a row, tells the daemon, if there is one,
 * and waits until the daemon has read the process, for at most PROTO_CRASH_NS. Then everything goes
 * on as it would have without our handler: the program's handler is called, or the signal ends the
 * process, with the same status, siginfo and core. Where the stack has overflowed, the handler runs
 * on the thread's alternate stack; if the thread has none, the kernel ends the process at once. */
#pragma once

#include "agent/crash/sink.h"

/* Puts the handler in front, also of a handler that has taken its place without going on to it. */
void fatal_on(const struct crash_sink *sink);
/* Takes it out, where nobody has put another one in front of it: that may go on to it. */
void fatal_off(void);
/* Lets a waiting handler go on: the daemon has read the process, or is gone. Any thread. */
void fatal_seen(void);
/* Whether a handler of the program may still call ours, or a thread is inside it. */
bool fatal_remains(void);
/* In a child after fork. */
void fatal_forget(void);
