/* probing.event("saved", path="a.pt"). */
#pragma once

#include "agent/probing/probing.h"

/* event(name, /, **attrs): the capsule is its self. */
PyObject *event_function(PyObject *capsule, PyObject *const *args, Py_ssize_t count,
                         PyObject *names);
