/* What fork() leaves of the agent in a child: nothing (fork.c). */
#pragma once

extern unsigned fork_number;

/* How many forks lie between this process and the one that loaded the library. */
static inline unsigned fork_count(void) { return fork_number; }
