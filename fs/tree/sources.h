/* The names of sources/. */
#pragma once

#include "fs/tree/names.h"

extern const struct naming source_names;
