/* The names <tid> and <depth>: the threads of a process and the Python frames of a thread. */
#pragma once

#include "fs/tree/names.h"

/* A deeper stack has names for the other frames too, but they are not listed. */
#define DEPTHS_LISTED_MAX 512

extern const struct naming tids, depths;
