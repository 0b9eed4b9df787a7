/* Whether an interpreter can be asked to run a script (PEP 768), and where it keeps what that
 * takes. */
#pragma once

#include "fs/remote/moment/target.h"

struct script_offsets {
    struct debugger_offsets offsets;
    uint64_t interp; /* the main interpreter */
};

/* Reads it. -EOPNOTSUPP, with words: older than 3.14, or disabled; -EAGAIN, with words: it is only
 * starting; -ESRCH; -EPERM. */
int script_offsets_read(struct target *target, struct script_offsets *out, struct text *why);
