/* How a process came to its end, as far as that can be known of a process that
 * isn't one's child. */
#pragma once

#include "fs/base/text.h"

#include <stdint.h>
#include <sys/types.h>
#include <time.h>

struct ending {
    struct timespec when; /* it was noticed */
    enum {
        ENDING_UNKNOWN,
        ENDING_EXITED,   /* number: the exit status */
        ENDING_KILLED,   /* number: the signal */
        ENDING_EXECUTED, /* the process lives and runs another program */
    } how;
    int number;
};

/* What is to be seen of a process that has ended just now, or some time ago.
 * pidfd: of it, -1: none. */
void ending_see(pid_t pid, uint64_t start_time, int pidfd, struct ending *out);
/* Reads a status as wait(2) gives it. */
void ending_of_status(int status, struct ending *out);
/* "Ended: ..." and "Exit: ...", a line each. */
void ending_text(const struct ending *ending, struct text *out);
