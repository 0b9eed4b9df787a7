/* What is told by those that see a crash come, the handler of signals (fatal.c) and the hooks of
 * exceptions (uncaught.c): crash.c, which counts crashes and writes their rows. */
#pragma once

#include "agent/interpreter/interpreter.h"

struct crash_sink {
    /* The number of the next crash. Any thread, also in a signal handler. */
    int64_t (*number)(void);
    /* Whether crashes are of interest in this process. Any thread, also in a signal handler. */
    bool (*wanted)(void);
    /* Nobody caught this exception, which is about to be shown, in this thread. traceback may be
     * NULL. With the GIL; leaves no exception. Whether it was new: then `told` is to follow once it
     * has been shown. */
    bool (*uncaught)(struct interpreter *interpreter, PyObject *exception, PyObject *traceback);
    void (*told)(const PyObject *exception);
};
