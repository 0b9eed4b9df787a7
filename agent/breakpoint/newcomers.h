/* Interpreters that come into being while there are breakpoints: these belong
 * there, too. Nothing tells of them that could be taken out again, so it is looked
 * whether the newest one is another. */
#pragma once

#include <stdint.h>

/* Arms the breakpoints in those that are new. Returns after how many nanoseconds it is worth while
 * to look again; 0: there are no breakpoints. Python's thread, without the GIL, which has a thread
 * state. */
uint64_t newcomers_look(void);
