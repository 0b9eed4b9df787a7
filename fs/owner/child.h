/* Processes that the mount's starts and asks: this very program, begun anew, so that nothing of
 * what the mount holds is in their memory. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#define CHILD_CONTROL 3       /* descriptors: the socket that it is asked by ... */
#define CHILD_SHARED 4        /* ... and what else it was given, if anything */
#define CHILD_STOPPED_LOOKS 3 /* 100 ms each: one that is stopped for so long isn't waited for */

/* Starts one, whose argv[0] is the name. Takes over `control`; shared: -1, or a descriptor from
 * child_descriptor(), which stays the caller's. -errno. */
int child_start(const char *name, int control, int shared, pid_t *out);
/* Moves a descriptor to where none of a child's goes: it takes over the one, and returns the other,
 * or -errno. */
int child_descriptor(int fd);
/* Whether a thread of it is stopped: whoever has its rights can do that. */
bool child_is_stopped(pid_t tid);
