/* Watchpoints: the storage behind an expression, how it is watched, and what is seen of it.
 *
 * Memory that stays where it is is watched by a debug register, which the daemon arms in every
 * thread (probe_agent_record.watches); what that sees comes as SIGTRAP to the thread that wrote
 * (trap.h). Dicts are watched through CPython (PyDict_Watch, 3.12). Where there is neither, values
 * are compared at each line of the code that can change them. */
#pragma once

#include "agent/breakpoint/breakpoint.h"
#include "agent/interpreter/interpreter.h"

/* The daemon says what became of a slot: where it can't be armed, values are compared at lines
 * instead. -errno with words. */
int watch_armed(struct interpreter *interpreter, const struct proto_armed *armed,
                char words[PROTO_WORDS_MAX]);

/* The daemon has gone: debug registers that it armed by ptrace(2) are still armed; sees to it that
 * they are cleared. Channel's thread. */
void watch_daemon_gone(void);
/* Ends all in an interpreter: at its end, and at detach, for which the daemon has disarmed all.
 * With its GIL, which is given up meanwhile. */
void watch_leave(struct interpreter *interpreter);
void watch_forget(void); /* in a child after fork */
