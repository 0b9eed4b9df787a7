/* Processes that the mount's starts and asks: this very program, begun anew, so that nothing of
 * what the mount holds is in their memory. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define CHILD_CONTROL 3 /* descriptors: the socket that it is asked by ... */
#define CHILD_SHARED 4  /* ... and what else it was given, if anything */

/* Starts one, whose argv[0] is the name. Takes over `control`; shared: -1, or a descriptor from
 * child_descriptor(), which stays the caller's. -errno. */
int child_start(const char *name, int control, int shared, pid_t *out);
/* Moves a descriptor to where none of a child's goes: it takes over the one, and returns the other,
 * or -errno. */
int child_descriptor(int fd);
/* Whether a thread of it has been stopped for so long that it isn't waited for: whoever has its
 * rights can stop it. To be asked each MAY_HANG_LOOK_MS; *looks, 0 at first: in a row. */
bool child_stays_stopped(pid_t tid, unsigned *looks);
/* Waits until something can be received from it, or its end is closed. until: CLOCK_MONOTONIC, ns.
 * 0; -ETIME: nothing comes. */
int child_await(int fd, pid_t pid, uint64_t until);
