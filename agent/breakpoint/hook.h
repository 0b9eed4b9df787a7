/* Breakpoints of kind HOOK: where the program calls its own breakpoint(). While one is armed in an
 * interpreter a function of ours stands there as sys.breakpointhook, in front of the one that was
 * there before. It hits them; a thread that none of them has held goes on with what stood there, so
 * that a breakpoint() which is only logged does what it would do without us. CPython's own looks at
 * PYTHONBREAKPOINT only then.
 *
 * With the GIL of the interpreter. */
#pragma once

#include "agent/interpreter/interpreter.h"

/* Puts ours in front, unless it stands there. 0; -EIO with an exception set. */
int hook_begin(struct interpreter *interpreter);
/* Whether ours stands there. */
bool hook_stands(void);
/* Puts back what stood there, unless the program has set another one since. Who has kept ours has
 * what stood there called by it. Leaves no exception. */
void hook_end(void);
