/* What tells one program from another: the lines of status that never change. */
#pragma once

#include "fs/remote/moment/target.h"

/* "Python: ...", "Implementation: ...", "Supported: ...", "Executable: ..." and "Cmdline: ...". */
void identity_program(struct target *target, struct text *out);
/* "Started: ...". Returns how long that is ago, in seconds. */
double identity_started(uint64_t start_time, struct text *out);
