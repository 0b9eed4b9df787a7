/* What holds a thread at an exception that the program has asked to be looked at: crash/crash.c. */
#pragma once

#include "agent/cpython/python.h"

struct holder {
    /* Holds the calling thread as `on-crash stop` does, for as long as the environment says, with
     * or without a daemon. Whether it was held; leaves no exception. With the GIL. */
    bool (*hold)(PyObject *exception);
};
extern const struct holder crash_holder;
