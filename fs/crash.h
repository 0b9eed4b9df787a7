/* The frames of the last crash. */
#pragma once

#include "fs/layout.h"

extern const struct naming crash_depths;
