/* The threads that answer the kernel. libfuse's own loop ends, and the daemon with it, once one of
 * its threads gets no memory for a request. */
#pragma once

#define FUSE_USE_VERSION 314

#include <fuse_lowlevel.h>

/* Answers until the mount is gone, or a signal of fuse_set_signal_handlers(3) comes. 0; -EAGAIN:
 * there can't be a single thread; or the error of reading requests. Called by the main thread. */
int loop_run(struct fuse_session *session);
