/* The agent's library, as it is put into processes: part of this program, so that no path is
 * searched for it. */
#pragma once

#include "fs/inject/inject.h"

/* The image and its entry point, which is found by its own symbol table. -ENOEXEC: it has none. */
int agent_image(struct inject_image *out);
