/* Starting the agent by the program's own wish. */
#pragma once

#include "agent/cpython/python.h"
#include "agent/wire/proto.h"

/* Starts the agent, unless it runs already, or runs in another copy of this library that a daemon
 * has put in. 0 or -errno. */
int start_agent(enum proto_origin origin);
/* probing.start(). Raises OSError if the agent can't be started. */
PyObject *start_function(PyObject *self, PyObject *unused);
/* What asked for the agent, when it is started by an import. */
enum proto_origin start_origin(void);
