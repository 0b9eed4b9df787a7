/* CPython before 3.12: one trace function in C for all that want to hear what code does: the recorder of exceptions, breakpoints,
 * steps.
 *
 * It is set in each thread that has none, new threads too, while anybody is interested. Those that have one of their own
 * are left alone, and that is said. */
#pragma once

#include "agent/interpreter.h"
#include "agent/proto.h"

enum trace_client { TRACE_EXCEPTIONS, TRACE_BREAKPOINTS, TRACE_STEPS, TRACE_CLIENTS };

/* Of CPython's cpython/pystate.h. */
enum trace_what { TRACE_CALL = 0, TRACE_EXCEPTION, TRACE_LINE, TRACE_RETURN };

/* What is called, with the GIL, in the thread itself; arg as of Py_tracefunc. False: an exception is set that the program is to
 * see. */
typedef bool trace_function(struct interpreter *interpreter, PyFrameObject *frame, enum trace_what what, PyObject *arg);
/* Whether a client wants the lines of a frame, as it is entered or is looked at first. */
typedef bool trace_wants(struct interpreter *interpreter, PyFrameObject *frame);

/* Has `call` called in all threads of an interpreter; wants NULL: always. words: what to say of it. 0; -EOPNOTSUPP. With the
 * GIL; leaves no exception. */
int trace_add(struct interpreter *interpreter, enum trace_client client, trace_function *call, trace_wants *wants,
              char words[PROTO_WORDS_MAX]);
/* What a client wants has changed: frames that are being run are looked at again. */
void trace_again(struct interpreter *interpreter);
void trace_remove(struct interpreter *interpreter, enum trace_client client);
