/* What is recorded, in words: the lines of `ctl` and of status. */
#pragma once

#include "fs/recording/recording.h"

/* "Record: spans on 4194304 rows=12 lost=0": a table's name, whether it is recorded now, the size
 * of its ring in bytes, rows that are there and that are not any more. torch_trace has its rate
 * behind that, and a ring that could not be made, or whose rows can't be counted now, its error. */
void recorded_text(struct recording *recording, enum recorded table, struct text *out);
/* recorded_text() for each table that has a ring. */
void recorded_text_all(struct recording *recording, struct text *out);
