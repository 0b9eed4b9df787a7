/* A process's agent in words: the lines of `ctl` and of <pid>/status. */
#pragma once

#include "fs/link/attach.h"

/* "Agent: none", or how it is, one `Key: value` a line. */
void agent_text(const struct attach_status *status, struct text *out);
/* agent_text() as far as it can be seen without asking the agent; what can't be seen is left
 * out. */
void agent_text_passive(struct target *target, struct text *out);
