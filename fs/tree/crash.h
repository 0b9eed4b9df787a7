/* The last crash of a process. */
#pragma once

#include "fs/tree/names.h"

/* Whether there was one. */
bool crash_is_there(struct file_context *context);
/* The names of a crash's frames. */
extern const struct naming crash_depths;
