/* What tells one program from another: the lines of status that never change. */
#pragma once

#include "fs/remote/moment/target.h"

struct snapshot;

/* "Python: ...", "Implementation: ..." and "Supported: ...". */
void identity_version(struct target *target, struct text *out);
/* Adds "Executable: ..." and "Cmdline: ...". */
void identity_program(struct target *target, struct text *out);
/* "Started: ...". Returns how long that is ago, in seconds. */
double identity_started(uint64_t start_time, struct text *out);
/* What only the interpreter knows: "GilHolder: ...", "GilWaiting: ...", "PythonThreads: ..." and
 * "Interpreters: ...". */
void identity_interpreter(const struct snapshot *snapshot, struct text *out);
