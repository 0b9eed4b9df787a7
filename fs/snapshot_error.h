/* Words for what snapshot_take() and snapshot_visit() can fail with. */
#pragma once

#include "fs/file.h"

/* Writes what failed, why and what to do into context->why; returns error. */
int snapshot_error(struct file_context *context, int error);
