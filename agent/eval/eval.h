/* Running a piece of Python: the way to evaluate/ and back. */
#pragma once

#include "agent/eval/requests.h"
#include "agent/interpreter/interpreter.h"

/* What came of it. */
struct evaluation {
    struct proto_done done;
    char *output; /* UTF-8; free() */
    size_t size;
};

/* Runs an EVAL in the interpreter, whose GIL is held and whose guest is made. here, borrowed: the
 * frame, or the exception, at which the calling thread is held; NULL: it is one of ours. Always
 * leaves something to answer, and no exception. */
void eval_run(struct interpreter *interpreter, struct request *request, PyObject *here,
              struct evaluation *out);
