/* The names <pid>: every process that runs CPython. */
#pragma once

#include "fs/tree/names.h"

extern const struct naming pids;
/* The names exited/<pid>: processes that have ended and left a recording. */
extern const struct naming exited_pids;
