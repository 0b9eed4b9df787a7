/* Interpreters that come into being while there are breakpoints: these belong
 * there, too. Nothing tells of them that could be taken out again, so it is looked
 * whether the newest one is another. */
#pragma once

#include <stdbool.h>

#define NEWCOMERS_NS 200000000ull /* how often */

/* Arms the breakpoints in those that are new. Whether there are breakpoints: then it is worth while
 * to look again. Python's thread, without the GIL, which has a thread state. */
bool newcomers_look(void);
