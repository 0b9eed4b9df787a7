/* The set of breakpoints of a process as its agent has written it down: seen without asking.
 *
 * The ring `breakpoints` has a row for each change (agent/breakpoint/change.h): of those
 * with one id the last counts. */
#pragma once

#include "fs/recording/recording.h"

struct breakpoint_rows {
    struct ring_row **rows; /* of the ring's layout, by id; each is malloc'ed */
    size_t n, alloc;
};

/* Ascending by id; empty where nothing was recorded. -ENOMEM. To be released in any case. */
int breakpoint_rows_read(struct recording *recording, struct breakpoint_rows *out);
void breakpoint_rows_deinit(struct breakpoint_rows *set);
