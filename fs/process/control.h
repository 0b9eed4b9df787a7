/* Who may have something done in a process. */
#pragma once

#include "fs/access/credentials.h"
#include "fs/process/process.h"

/* 0, or -EACCES or -EPERM, and why says what to do; -ESRCH. Completes caller
 * when that is needed. */
int control_may(const struct access *access, struct access_caller *caller, struct process *process,
                struct text *why);
/* The same for all of them. */
int control_may_all(const struct access *access, struct principals *principals,
                    struct process *process, struct text *why);
