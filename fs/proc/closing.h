/* Who closes a descriptor, and whether others of the same open file are left.
 *
 * The kernel tells of each close(2), not which one is the last that matters: `echo x >&3` in a
 * shell makes a copy of descriptor 3 and closes it, and a child's exit closes what it inherited. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum closing {
    CLOSING_ASKED,  /* by close(2) or dup2(2) */
    CLOSING_EXITED, /* by exit(2): no signal reaches it any more */
    CLOSING_KILLED, /* by the end that a signal gave it */
};

/* How thread tid, which waits for the answer to a close, came to that. */
enum closing closing_kind(pid_t tid);

/* Whether the process of thread tid, or one it descends from, has a descriptor of the file whose
 * st_ino is `number`. What can't be seen is taken for none. */
bool closing_held(pid_t tid, uint64_t number);

/* The parts of it that parse: PF_EXITING and the exit code in /proc/PID/stat, "ino:" in fdinfo. */
enum closing closing_parse(const char *stat);
bool closing_parse_inode(const char *fdinfo, uint64_t *out);
