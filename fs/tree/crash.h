/* The frames of the last crash. */
#pragma once

#include "fs/tree/names.h"

extern const struct naming crash_depths;
