/* Finds where an interpreter's GIL lies, without a walk over its threads. */
#pragma once

#include "fs/remote/objects/runtime.h"

/* Of the word `locked` of struct _gil_runtime_state, which is -1 until the GIL is made. */
static inline bool gil_is_locked(uint32_t word) { return (int32_t)word > 0; }
/* The address of the switch interval of the GIL that interpreter `id` uses
 * (sys.setswitchinterval(), an unsigned long of microseconds): the first field of struct
 * _gil_runtime_state, Include/internal/pycore_gil.h. -ENOENT: no such interpreter, or it has no GIL
 * now; -EAGAIN: what is there makes no sense; -EOPNOTSUPP; -ESRCH, -EPERM, -EFAULT. */
int gil_interval_find(const struct memory *memory, const struct runtime *runtime, int64_t id,
                      uint64_t *out);
/* The kernel's number of the thread that has it now, as the process itself counts
 * (PyThreadState.native_thread_id, from 3.11 on); 0: none has. Errors as above. */
int gil_holder_find(const struct memory *memory, const struct runtime *runtime, int64_t id,
                    pid_t *out);
