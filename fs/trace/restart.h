/* System calls that a stop interrupts for good.
 *
 * Most system calls go on after a ptrace stop as if nothing had been; some return EINTR although
 * no signal came (signal(7), "Interruption of system calls and library functions by stop signals").
 * Only threads that run are stopped, but one may have entered such a call just then. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* Whether a thread sleeps in such a system call at this moment. */
bool restart_sleeps(pid_t tid);
/* To be asked of a thread that is traced already, before it is stopped: what comes of it is for
 * restart_interrupted(). */
bool restart_before(pid_t tid);
/* If the stopped thread is about to see such an EINTR, and no signal is there to explain
 * it, makes it enter the system call again instead. A timeout begins anew then: it may
 * last longer, never shorter. */
void restart_interrupted(pid_t tid, bool before);
