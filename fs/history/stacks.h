/* What a profile has sampled in a while, for the history. */
#pragma once

#include "fs/history/file.h"
#include "fs/profile/store.h"

#define HISTORY_STACKS_MAX 200 /* of one mode, each time; the rest is summed up */

/* Appends what there is from one moment to another, both of CLOCK_MONOTONIC, ns, and whole slices.
 * -ENOMEM, or what history_file_add_stack() returns. */
int history_add_stacks(struct history_file *file, const struct history_front *front,
                       struct store *store, uint64_t from, uint64_t to);
