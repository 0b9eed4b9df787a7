/* The rows of every process at once: host, pid and rank stand in front of each. */
#pragma once

#include "fs/file.h"
#include "fs/sql/engine.h"

#define ALL_THREADS 8                   /* processes that one statement reads side by side */
#define ALL_THREADS_TOTAL 128           /* of all statements, and of readings that hang */
#define ALL_DEADLINE_NS 5000000000ull   /* for all of them; who isn't read by then is left out */

/* A provider; arg is a const struct file_context. Only processes that the caller may look at have
 * rows. One that can't be read, or not in time, has none, and its errors say why. */
int all_provide(void *arg, struct wanted *const *wanted, size_t n, const struct stop *stop,
                struct text *why);

/* The provider for a file's place: of its process, or of all. context must outlive it. */
struct provider context_provider(const struct file_context *context);
