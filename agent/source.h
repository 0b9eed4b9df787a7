/* Executing the Python that we bring along, as embed.sh has cut it into parts. */
#pragma once

#include "agent/python.h"

/* A file of ours in parts, and the name of its frames, by which they are told from others. */
struct source {
    const char *name, *parts;
};

/* A new namespace in which sources, up to one without parts, have been executed in this order; they know `probe` as
 * _probe. NULL with an exception set. */
PyObject *source_namespace(const struct source *sources, PyObject *probe);
/* Empties a namespace and gives it up. Functions know the one that they are defined in: else it would never be freed. */
void source_drop(PyObject **namespace);

/* name: of its frames. -EIO with an exception set. */
int source_execute(const char *parts, const char *name, PyObject *globals);
/* The next part; an empty one is behind the last. */
const char *source_next(const char *part);
