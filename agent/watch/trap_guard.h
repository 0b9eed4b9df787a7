/* What the interpreter itself does about SIGTRAP while our handler of it stands (signal.signal(),
 * faulthandler.register()): a program that gives the signal its default back would be killed by the
 * next write that is watched, and a handler of its own would be told of writes.
 *
 * The interpreter's call of sigaction() goes through a table of its image that the dynamic loader
 * has filled in: that entry leads to us meanwhile. What other libraries of the program call isn't
 * seen. Under the main interpreter's GIL. */
#pragma once

#include <signal.h>
#include <stdbool.h>

/* As sigaction(2), of SIGTRAP. */
typedef int trap_action(const struct sigaction *action, struct sigaction *old);

/* Has the interpreter's calls for SIGTRAP lead to `action` from now on. False: they can't be
 * found. */
bool trap_guard_begin(trap_action *action);
/* Has the interpreter's calls lead where they did before. */
void trap_guard_end(void);
