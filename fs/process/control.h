/* Checks who may look at a process, or at what is left of it, and who may have something done in
 * it. */
#pragma once

#include "fs/access/credentials.h"
#include "fs/process/process.h"

/* Whether the caller may look at it: as access_look(), or access_look_ended(). */
int look_may(const struct access *access, struct access_caller *caller, struct process *process);
/* look_may() for all in whose name something is done. */
int look_may_all(const struct access *access, struct principals *principals,
                 struct process *process);

/* 0, or -EACCES or -EPERM, and why says what to do; -ESRCH. Completes caller
 * when that is needed. */
int control_may(const struct access *access, struct access_caller *caller, struct process *process,
                struct text *why);
/* control_may() for all in whose name something is done. */
int control_may_all(const struct access *access, struct principals *principals,
                    struct process *process, struct text *why);
