/* Which part of a profile a file shows: the directory says it. */
#pragma once

#include "fs/profile/sum.h"
#include "fs/tree/names.h"

/* The names of threads/<tid>, last/<duration>, marks/<mark>, modes/<mode>, diff/<from>..<to> and
 * source/<file> below profile/. */
extern const struct naming profile_threads, profile_lasts, profile_marks, profile_modes,
    profile_diffs, profile_sources;

/* "rank 3", or "pid 1234": the root of a process's stacks among those of others. */
void profile_root(const struct process *process, char name[32]);

/* The sum that the file shows, of its process or, below all/, of all that the reader may look at.
 * One of which nothing was sampled is empty. moments: single samples too. -ENOENT, -ENOMEM. The
 * caller owns *out (sum_deinit). */
int profile_view(struct file_context *context, bool moments, struct sum *out);

/* The source files that were seen, each once, ascending; what profile_sources names. Calls each()
 * with its name below source/ and its path, until it returns something but 0: that. */
int profile_each_source(struct file_context *context,
                        int (*each)(void *arg, const char *name, const char *path), void *arg);

/* "Profile: running, cpu, 97 Hz, timer, 1234 samples", a line of ctl and status; nothing where none
 * was ever started. */
void profile_add_line(struct process *process, struct text *out);
