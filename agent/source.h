/* Executing the Python that we bring along, as embed.sh has cut it into parts. */
#pragma once

#include "agent/python.h"

/* name: of its frames. -EIO with an exception set. */
int source_execute(const char *parts, const char *name, PyObject *globals);
/* The next part; an empty one is behind the last. */
const char *source_next(const char *part);
