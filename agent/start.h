/* Starting the agent by the program's own wish. */
#pragma once

#include "agent/proto.h"
#include "agent/python.h"

/* 0 or -errno: unless it runs already, or a daemon has put one in, which is another copy of this library. */
int start_agent(enum proto_origin origin);
/* start(): OSError says why not. */
PyObject *start_function(PyObject *self, PyObject *unused);
/* What an import means. */
enum proto_origin start_origin(void);
