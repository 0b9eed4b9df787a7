/* The session of a command with its process's agent. */
#pragma once

#include "fs/file.h"
#include "fs/link/attach.h"

/* agent_attach(), but not where that can't work: a process all of whose threads wait for the
 * answer to what they wrote gets -EDEADLK at once. context->why says what to do. */
int attached_session(struct file_context *context, enum attach_way way, struct session **out);
