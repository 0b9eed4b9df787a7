/* The names <pid>: every process that runs CPython. */
#pragma once

#include "fs/layout.h"

extern const struct naming pids;
