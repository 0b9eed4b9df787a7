/* Threads that work for the daemon beside those of the mount. */
#pragma once

#include <pthread.h>

/* Starts one with a stack of 1 MiB and all signals blocked: these are for the threads of the
 * mount. name: less than 16 bytes. -errno as pthread_create(3). */
int worker_start(void *(*run)(void *), void *arg, const char *name, pthread_t *out);
/* worker_start() with a stack of 16 MiB, for what may recurse; only what is used of it is real. */
int worker_start_deep(void *(*run)(void *), void *arg, const char *name, pthread_t *out);
/* Closes a descriptor that a process handed out, by a thread of its own: if its file system doesn't
 * answer, close(2) may wait for ever. */
void worker_close(int fd);
