/* The recorder of exceptions: what it does with what sys.monitoring tells it (exceptions.c), or a trace function
 * (exceptions_trace.c).
 *
 * Nothing here lets go of the GIL: no code of the program's is run, no reference is given up that could be the last
 * one to something, and the cyclic collector doesn't run. So whoever has the GIL of an interpreter knows that nobody
 * is inside. */
#pragma once

#include "agent/raised.h"
#include "agent/sighting.h"
#include "agent/site.h"

struct interpreter;

/* Of an interpreter, from on to off. */
struct exceptions {
    const struct interpreter *owner;
    PyObject *functions[3];             /* by which sys.monitoring calls us; borrowed */
    struct sightings sightings;
    struct sites sites;
    struct raised raised;
};

/* That of the calling thread's interpreter; NULL: it is off. */
struct exceptions *exceptions_here(void);
/* An exception is in a frame of this code: raised there, or come up to there. traceback: what it has got, the entry
 * of the frame being the newest one; NULL: none. */
void exceptions_raised(struct exceptions *self, PyObject *code, PyObject *exception, PyObject *traceback);
/* A handler begins in a frame of this code. */
void exceptions_handled(struct exceptions *self, PyObject *code, PyObject *exception);
/* It leaves a frame of this code; back: that of the caller, NULL: there is none. */
void exceptions_left(struct exceptions *self, PyObject *code, PyObject *back, PyObject *exception);
