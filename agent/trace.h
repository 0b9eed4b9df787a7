/* CPython before 3.12: one trace function in C for all that want to hear what code does: the recorder of exceptions, breakpoints,
 * steps.
 *
 * It is no object, and sys.gettrace() still says None. It is set in each thread that has none, new threads too, while anybody is
 * interested. Those that have one of their own are left alone, which is said; where the program sets one later, that
 * takes its place. */
#pragma once

#include "agent/interpreter.h"
#include "agent/proto.h"

enum trace_client { TRACE_EXCEPTIONS, TRACE_BREAKPOINTS, TRACE_WATCHES, TRACE_STEPS, TRACE_CLIENTS };

/* Of CPython's cpython/pystate.h. */
enum trace_what { TRACE_CALL = 0, TRACE_EXCEPTION, TRACE_LINE, TRACE_RETURN };

/* What is called, with the GIL and without an exception set, in the thread itself, which doesn't trace meanwhile; arg, borrowed, as
 * of Py_tracefunc. False: an exception is set that the program is to see. */
typedef bool trace_function(struct interpreter *interpreter, PyFrameObject *frame, enum trace_what what, PyObject *arg);
/* What a client wants of a code object in a thread, which need not be the calling one. */
enum trace_interest {
    TRACE_NEVER,   /* nothing, in no thread, before trace_again() */
    TRACE_NOT_NOW, /* nothing, this time */
    TRACE_NOW,     /* to hear of this frame */
};
/* It lets nobody else have the GIL. entered: a frame of it is about to run, and the code may have been loaded only now; else it
 * runs already. Code of a module, a class or exec() is asked for at each frame that is entered. */
typedef enum trace_interest trace_wants(struct interpreter *interpreter, PyThreadState *state, PyObject *code, bool entered);

/* All with the GIL of the interpreter; no exception is set afterwards. */

/* What a client wants beyond that. */
enum trace_scope {
    TRACE_WANTED,  /* nothing */
    TRACE_RAISES,  /* TRACE_EXCEPTION of all code; and what comes next in a frame that it was told of, but that may be more */
    TRACE_ALL,     /* all of all code */
};

/* Has `call` called in all threads of an interpreter, at least for what is wanted. wants NULL: nothing is asked. Again, where it is
 * a client already. words: what is to be said of it. 0; -EOPNOTSUPP. */
int trace_add(struct interpreter *interpreter, enum trace_client client, trace_function *call, trace_wants *wants,
              enum trace_scope scope, char words[PROTO_WORDS_MAX]);
/* What a client wants has changed: frames that are being run are looked at again. */
void trace_again(struct interpreter *interpreter);
void trace_remove(struct interpreter *interpreter, enum trace_client client);
/* Waits a moment, without the GIL, until no thread is in a function of this library any more, once all clients are removed. */
void trace_wait(void);
/* Whether a thread is in a function of this library for the sake of a client, or may still get there. */
bool trace_remains(void);
/* In a child after fork, before anything else runs: nobody is a client any more. */
void trace_forget(void);
