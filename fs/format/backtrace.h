/* The stacks of a process as a text, and why there are none. */
#pragma once

#include "fs/base/text.h"
#include "fs/remote/moment/target.h"

struct recording;
struct snapshot;

/* Adds the stacks of all threads but the agent's to out, Python and native frames merged, innermost
 * first. recording: the process's. 0 or -errno as snapshot_take(), and why says what failed, why,
 * and what to do. */
int backtrace_text(struct target *target, struct recording *recording, struct text *why,
                   struct text *out);

/* The two lines above all threads. */
void snapshot_add_head(const struct snapshot *snapshot, struct text *out);

/* Puts into why what snapshot_take() or snapshot_visit() failed with, why, and what to do. tid: the
 * thread that was asked for, 0: all. Returns error. */
int snapshot_explain(const struct target *target, pid_t tid, int error, struct text *why);
