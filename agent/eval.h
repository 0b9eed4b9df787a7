/* Running a piece of Python: the way to evaluate/ and back. */
#pragma once

#include "agent/interpreter.h"
#include "agent/requests.h"

/* What came of it. */
struct evaluation {
    struct proto_done done;
    char *output;   /* UTF-8; free() */
    size_t size;
};

/* Runs an EVAL in the interpreter, whose GIL is held and whose guest is made. Always leaves something
 * to answer, and no exception. */
void eval_run(struct interpreter *interpreter, struct request *request, struct evaluation *out);

/* Copies a str, cut at a whole character; NULL: nothing. No exception is set after it. */
void eval_copy_words(PyObject *text, char *words, size_t size);
/* Describes the Python exception that is set, and clears it. */
void eval_describe_exception(char *words, size_t size);
