/* Threads that are held, in words. */
#pragma once

#include "fs/base/text.h"
#include "fs/recording/held_threads.h"

/* "breakpoint 3 at train.py:88 (main) for 12.3 s, stop 17, goes on in 3587 s". */
void held_text(struct target *target, const struct held *held, struct text *out);
/* `Stopped: ` and the numbers of the threads, or "none"; nothing where no agent runs, which can
 * hold them. `Pausing: ` and those that are to stop, each with what it waits for meanwhile, "1240
 * (futex)", where there are such. */
void held_text_all(struct target *target, struct text *out);
/* held_text_all() without numbers of threads, "Stopped: 2 threads": what many processes say
 * alike. */
void held_text_count(struct target *target, struct text *out);
