/* Finds where an interpreter's GIL lies, without a walk over its threads. */
#pragma once

#include "fs/remote/objects/runtime.h"

/* The address of the switch interval of the GIL that interpreter `id` uses
 * (sys.setswitchinterval(), an unsigned long of microseconds): the first field of struct
 * _gil_runtime_state, Include/internal/pycore_gil.h. -ENOENT: no such interpreter, or it has no GIL
 * now; -EAGAIN: what is there makes no sense; -EOPNOTSUPP; -ESRCH, -EPERM, -EFAULT. */
int gil_interval_find(const struct memory *memory, const struct runtime *runtime, int64_t id,
                      uint64_t *out);
