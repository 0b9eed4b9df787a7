/* Telling a child of fork() from its parent without a system call, and who has forked at all. */
#pragma once

#include <stdbool.h>

extern unsigned fork_number; /* set by agent/fork.c alone */

/* How many forks lie between this process and the one that loaded the library. */
static inline unsigned fork_count(void) { return fork_number; }

/* Whether this process has forked since it has had the library. Then that isn't unloaded any more:
 * glibc (posix/register-atfork.c) gives up its lock around each handler that it calls, and so may
 * call one of a library that another thread unloads just then. */
extern bool fork_begun; /* set by agent/fork.c alone */
