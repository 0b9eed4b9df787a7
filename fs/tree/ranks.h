/* The names <rank>: the ranks of distributed jobs.
 *
 * A rank is RANK in the environment that a process was started with. Workers that a trainer forks
 * (data loaders) inherit it, and two jobs on one machine count from 0 each: of all that claim a
 * rank the one that started first has it, then the one with the lowest pid. */
#pragma once

#include "fs/tree/names.h"

extern const struct naming ranks;
