/* Executes the Python source that the library carries, in the parts into which agent/embed.sh has
 * cut it. */
#pragma once

#include "agent/cpython/python.h"

/* A file of ours in parts. `name` is the file name of its frames, by which they are known. */
struct embedded {
    const char *name, *parts;
};

/* Executes sources in this order, up to one without parts, in a new namespace where `probe`, unless
 * it is NULL, is called _probe. Returns the namespace, a new reference, or NULL with an exception
 * set. */
PyObject *embedded_namespace(const struct embedded *sources, PyObject *probe);
/* Empties a namespace and releases it. The functions defined in it refer to it, so that it would
 * never be freed otherwise. */
void embedded_drop(PyObject **namespace);

/* Executes the parts of one file in a namespace. `name` is the file name of its frames. 0, or -EIO
 * with an exception set. */
int embedded_execute(const char *parts, const char *name, PyObject *globals);
/* The part after this one; the last one is empty. */
const char *embedded_next(const char *part);
