/* The name <module>: the modules of a process. */
#pragma once

#include "fs/tree/names.h"

extern const struct naming modules;
