/* The stacks of every process that a file in all/ or jobs/<job>/ is about, one after the other. */
#pragma once

#include "fs/format/stacks.h"
#include "fs/tree/jobs.h"

#define ALL_BYTES_MAX (64u << 20) /* of all texts together */

/* One process is read: text is what was rendered, to be kept by taking it (and leaving TEXT_INIT),
 * or NULL: it can't be read, and why says so. Returns 0 or -errno, which ends the reading. */
typedef int all_take(void *arg, struct process *process, struct text *text, const char *why);

/* Reads those that the reader may look at, and that wants() is true of (NULL: of all), by rank,
 * then by pid. Some are read side by side. The reading goes on without one that hangs, and ends
 * when it has taken too long or is too much; those that are left out are taken, too. One that ends
 * is left out as if it had never been there. 0 or -errno: -EINTR, and what listing them fails with.
 */
int all_read(struct file_context *context, bool (*wants)(struct process *process),
             stacks_text *render, all_take *take, void *arg);
