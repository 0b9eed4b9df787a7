/* Threads that go on: by themselves, by steps, or to another line; and that are to pause. */
#pragma once

#include "contrib/dap/session.h"

request_run motion_continue, motion_step, motion_pause, motion_goto_targets, motion_goto;
request_after motion_next_after, motion_in_after, motion_out_after, motion_pause_after,
    motion_goto_after;
/* A thread has gone on: takes out the lines that were to go. One that such a line holds again goes
 * on. */
request_after motion_tidy;

/* Lets go the threads that this session holds. */
void motion_leave(struct session *session);
