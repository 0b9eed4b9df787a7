/* Functions that the cyclic collector doesn't tell of, since the program has told it to forget them (gc.freeze()): those that
 * modules and their classes hold, also behind decorators. */
#pragma once

#include "agent/python.h"

/* Whether there are objects that it doesn't tell of. No exception is set afterwards. */
bool codes_are_frozen(void);
/* Has `visit` called with each such function that is found, some of them more than once. Runs nothing of the program's. */
void codes_each_held(PyTypeObject *function, int (*visit)(PyObject *function, void *arg), void *arg);
