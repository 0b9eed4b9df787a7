/* Other copies of this library in the process. */
#pragma once

#include "agent/cpython/python.h"

/* Whether another copy is loaded whose agent runs. Takes the loader's lock. */
bool other_copies_run(void);
/* The module `probing` of another copy, a new reference. That copy is never unloaded from then on.
 * NULL: there is no other copy; an exception may be set. With the GIL. */
PyObject *other_copies_module(void);
/* Exported by each copy of the library, for other_copies_module() of another one. */
PyObject *probe_agent_module(void);
