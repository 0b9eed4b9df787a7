/* Threads that go on: by themselves, by steps, or to another line; and that are to pause. */
#pragma once

#include "contrib/dap/request.h"

#include <sys/types.h>

/* What holds a thread by a step or a pause is a file, and ends with it. */
struct motion {
    int all; /* `ctl` of the process; -1: it isn't open yet */
    struct thread_file {
        pid_t tid;
        int fd; /* its `ctl` */
    } * threads;
    size_t n, alloc;
};

void motion_init(struct motion *motion);
/* Lets go what it holds. */
void motion_leave(struct motion *motion);

request_run motion_continue, motion_step, motion_pause, motion_goto_targets, motion_goto;
request_after motion_next_after, motion_in_after, motion_out_after, motion_pause_after,
    motion_goto_after;
/* A step has left the program's own code: on to where that is again. */
request_after motion_to_own;
/* A thread has gone on: takes out the lines that were to go. One that such a line holds again goes
 * on. */
request_after motion_tidy;
