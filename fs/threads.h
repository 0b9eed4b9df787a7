/* The names <tid> and <depth>: the threads of a process and the Python frames of a thread. */
#pragma once

#include "fs/layout.h"

extern const struct naming tids;
