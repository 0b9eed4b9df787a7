/* Telling a child of fork() from its parent without a system call. */
#pragma once

extern unsigned fork_number; /* set by agent/fork.c alone */

/* How many forks lie between this process and the one that loaded the library. */
static inline unsigned fork_count(void) { return fork_number; }
