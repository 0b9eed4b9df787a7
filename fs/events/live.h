/* What profile/live tells: of each second in which anything was sampled, where it went. */
#pragma once

#include "fs/process/process.h"

#define LIVE_FUNCTIONS_MAX 40u

/* Somebody is going to ask for such blocks: samples are taken in as soon as that needs. */
void live_begin(struct process *process);
/* Adds a block for the second that begins at second * 1e9 ns of CLOCK_MONOTONIC: a line
 * `# TIME pid N [rank R] MODE`, the head and the first functions of profile/top, an empty line.
 * Nothing where nothing was sampled. Takes only what has been read from the process by now: it
 * never waits. */
void live_block(struct process *process, uint64_t second, struct text *out);
