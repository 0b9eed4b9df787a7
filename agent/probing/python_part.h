/* What contrib/probing.py, which is embedded, does for the module of the agent, too. */
#pragma once

#include "agent/probing/probing.h"

/* What it binds to a name; it is executed when it is first needed. A new reference, or NULL with an
 * exception set. */
PyObject *python_part(struct probing *probing, const char *name);
/* __getattr__ of the module: step, set_role and the like are there once somebody asks for
 * them. */
PyObject *python_part_attribute(PyObject *capsule, PyObject *name);
