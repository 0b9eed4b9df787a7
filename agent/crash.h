/* `on-crash`: what is left of an exception that nobody caught (uncaught.c), and of a fatal signal (fatal.c): rows of the
 * table `crash`, and, with `stop`, a thread that is held at its exception. No frame or object is kept by it otherwise. */
#pragma once

#include "agent/interpreter.h"
#include "agent/proto.h"

/* Carries out an ON_CRASH, in the main interpreter, whose GIL is held, and all others. 0, or -errno with words; without
 * words an exception is set. */
int crash_switch(struct interpreter *interpreter, const struct proto_on_crash *order, char words[PROTO_WORDS_MAX]);

/* Nobody caught this exception, which is about to be shown, in this thread. traceback may be NULL. With the GIL; leaves no
 * exception. Whether it was new: then crash_told() is to follow once it has been shown. */
bool crash_uncaught(struct interpreter *interpreter, PyObject *exception, PyObject *traceback);
void crash_told(const PyObject *exception);
/* The number of the next crash. Any thread, also in a signal handler. */
int64_t crash_number(void);
/* Whether crashes are of interest in this process. The same. */
bool crash_wanted(void);

/* Gives up what is in an interpreter, with its GIL; leaves no exception. */
void crash_leave(struct interpreter *interpreter);
/* The last step of a detach, by Python's thread: the handlers of signals are taken out. */
void crash_end(void);
/* Whether something may still call into the library: a handler of the program's that goes on to ours. */
bool crash_remains(void);
/* In a child after fork. */
void crash_forget(void);
