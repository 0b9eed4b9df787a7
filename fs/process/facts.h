/* What is taken down of a process while it lives, for when it has ended and only
 * its recording is left. */
#pragma once

#include "fs/access/access.h"

struct target;

struct facts {
    struct access_target access; /* the strictest that was seen */
    struct text identity;        /* lines of its status */
};

/* The facts of a process as they are now; program: lines of format/identity.h; rank -1: none.
 * -ESRCH, -ENOMEM. */
int facts_new(struct target *target, const struct text *program, int64_t rank, struct facts **out);
void facts_free(struct facts *facts); /* NULL is fine */

/* Makes `all` as strict as both are: who isn't the same user any more, or isn't
 * dumpable, is root's. */
void facts_merge_access(struct access_target *all, const struct access_target *now);
