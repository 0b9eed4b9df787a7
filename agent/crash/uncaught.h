/* The hooks that CPython calls for an exception that nobody caught: sys.excepthook,
 * threading.excepthook, and, for threads of _thread.start_new_thread(), sys.unraisablehook. Our
 * function stands in front of the program's hook and calls it afterwards.
 *
 * A program may set a hook later. From 3.12 on that is noticed (PyDict_Watch), and our function is
 * put in front of the new hook as soon as the main thread runs Python. Before 3.12, and in
 * interpreters other than the main one, our function is gone then until `on-crash` is written
 * again. */
#pragma once

#include "agent/crash/sink.h"

/* Puts them in front, in an interpreter whose GIL is held and whose guest is made; again, where
 * they are. 0, or -EIO with an exception set. */
int uncaught_on(struct interpreter *interpreter, const struct crash_sink *sink);
/* Takes them out again; one that the program has put another in front of stays, and does nothing
 * but call the next. Leaves no exception. */
void uncaught_off(struct interpreter *interpreter);
/* Whether the main thread is still to call a function of ours. */
bool uncaught_pending(void);
