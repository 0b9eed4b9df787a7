/* Other copies of this library in the process. */
#pragma once

#include "agent/python.h"

/* Whether another copy is loaded whose agent runs. Takes the loader's lock. */
bool loaded_elsewhere(void);
/* The module of such a copy, a new reference; that copy is never unloaded from then on. NULL: there is none, or
 * perhaps an exception is set. With the GIL. */
PyObject *loaded_module(void);
/* What that copy exports for it. */
PyObject *probe_agent_module(void);
