/* How a program finds `probing` in a process that an agent was put into.
 *
 * At the end of sys.meta_path stands a finder that is asked only when nothing else has a module of
 * that name: what the program, or its environment, calls probing stays what it is. A program that
 * has imported ours keeps it in sys.modules after a detach as well: what it imports again and again
 * in its functions must not be gone at once.
 *
 * contrib/probing.py, for programs that are to run where nothing is installed, is known by the
 * names in its namespace, and gets the module that it then passes everything on to; or asks the
 * finder for it when it is imported later. */
#pragma once

#include "agent/probing/probing.h"

/* Puts the finder into sys.meta_path, unless it is there, and connects modules of
 * contrib/probing.py that were imported already. 0, or -1 with an exception set. */
int finder_install(struct probing *probing);
/* Takes the finder out again. No exception is set afterwards. */
void finder_remove(struct probing *probing);
