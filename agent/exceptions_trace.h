/* Exceptions before there was sys.monitoring (CPython 3.10 and 3.11): by a trace function in C, in each thread that has
 * none of its own.
 *
 * It is no object, and sys.gettrace() still says None. Where the program sets one, that takes its place. New
 * threads are found by those that are traced, since each new thread state becomes the first of its interpreter.
 * The interpreter calls it at each line, which slows Python code several times. */
#pragma once

#include "agent/exceptions.h"

#include "agent/proto.h"

/* All with the GIL of the interpreter. */

/* Traces all threads, again where some are already. 0 or -errno; words say what the user has to know. */
int exceptions_trace(struct exceptions *self, char words[PROTO_WORDS_MAX]);
/* Stops that. No exception is set afterwards. */
void exceptions_untrace(struct exceptions *self);
