/* The environment that Python has: os.environ, which a program may change after its start. */
#pragma once

#include "fs/base/text.h"

struct target;

#define ENVIRONMENT_BYTES_MAX (64u << 10) /* of those that are taken */

/* Adds the variables that say something of a job (membership.h) to out, NAME=value, each ending
 * with a NUL. -ENOENT: it has no os.environ yet, or none that is a dict of bytes; -EOPNOTSUPP;
 * errors of imports_read_one(). Thread-safe; the process may hang (proc/may_hang.h). */
int environment_read(struct target *target, struct text *out);
