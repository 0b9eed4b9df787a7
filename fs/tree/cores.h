/* The names cores/<name>: the core files that the mount was given. */
#pragma once

#include "fs/tree/names.h"

extern const struct naming cores;
bool cores_are_there(struct file_context *context);
