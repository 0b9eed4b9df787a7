/* The places where CPython says that nobody caught an exception: sys.excepthook, threading.excepthook, and, for threads
 * of _thread.start_new_thread(), sys.unraisablehook. A function of ours stands in front of what was there, which it calls
 * afterwards.
 *
 * A program that sets one of them later is let go first: from 3.12 on that is seen (PyDict_Watch), and ours is put in
 * front of the new one as soon as the main thread runs Python; in interpreters other than the main one, and before 3.12, ours is
 * gone then until `on-crash` is written again. */
#pragma once

#include "agent/interpreter.h"

/* Puts them in front, in an interpreter whose GIL is held and whose guest is made; again, where they are. 0, or -EIO with an
 * exception set. */
int uncaught_on(struct interpreter *interpreter);
/* Takes them out again; one that the program has put another in front of stays, and does nothing but call the next.
 * Leaves no exception. */
void uncaught_off(struct interpreter *interpreter);
/* Whether a function of ours is still to be called by the main thread. */
bool uncaught_pending(void);
