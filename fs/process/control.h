/* Who may have something done in a process. */
#pragma once

#include "fs/access/access.h"
#include "fs/process/process.h"

/* 0, or -EACCES or -EPERM, and why says what to do; -ESRCH. Completes caller
 * when that is needed. */
int control_may(const struct access *access, struct access_caller *caller, struct process *process,
                struct text *why);
/* The same for who asks, of whom nothing was read yet. */
int control_ask(const struct access *access, const struct caller *from, struct process *process,
                struct text *why);
