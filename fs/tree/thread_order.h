/* Orders to threads that an agent holds. */
#pragma once

#include "fs/link/attach.h"
#include "fs/recording/held_threads.h"
#include "fs/tree/file.h"

/* Gives one to the agent; order->interp and gil_interval are filled in. here: it lives as long as
 * the command's file is open. 0, with what the agent says of it added to said, or -errno with why.
 */
int thread_order_give(struct file_context *context, struct session *session, bool here,
                      struct proto_thread *order, struct text *said);
/* Waits a moment until `enough` says so, asked again and again: 1. 0: not in time; -EINTR. */
int thread_order_wait(struct file_context *context,
                      bool (*enough)(struct file_context *context, void *arg), void *arg);
/* Since when the context's thread is held, of a process that is read here: *out, CLOCK_REALTIME,
 * ns; 0: it runs. -errno. */
int thread_held_since(struct file_context *context, uint64_t *out);
/* Adds how it is held, and by what, as threads/<tid>/ctl shows it. -errno. */
int thread_state_text(struct file_context *context, struct text *out);
