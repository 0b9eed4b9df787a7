/* Exceptions before there was sys.monitoring (CPython 3.10 and 3.11): by the trace function (trace.h). The interpreter calls it at
 * each line, which slows Python code several times. */
#pragma once

#include "agent/exceptions.h"
#include "agent/interpreter.h"
#include "agent/proto.h"

/* With the GIL of the interpreter; no exception is set afterwards. */

/* Begins, again where it has been done. 0 or -errno; words say what the user has to know. */
int exceptions_trace(struct interpreter *interpreter, char words[PROTO_WORDS_MAX]);
void exceptions_untrace(struct interpreter *interpreter);
