/* Taking down the stacks of processes that a fatal signal ends: their agent says so and waits a
 * moment (PROTO_CRASHED). Each is looked at by a thread of its own, since those of sessions must
 * not let go of what they serve. */
#pragma once

#include "agent/wire/proto.h"
#include "fs/process/process.h"

/* at once; more are not looked at, and go on when their agents have waited */
#define CRASHES_MAX 64
#define CRASHES_TEXT_MAX (1u << 20) /* bytes kept of one backtrace */

struct crashes;

/* -ENOMEM. */
int crashes_new(struct crashes **out);
/* Frees them. A look that hangs is left what it uses. */
void crashes_free(struct crashes *crashes);

/* Has the stacks taken down and kept (recording_keep_crash()), and the agent told. Takes over the
 * reference to process. Any thread. */
void crashes_look(struct crashes *crashes, struct process *process);
