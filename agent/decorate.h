/* @probing.span("name"): done in Python, by a part of contrib/probing.py, which is executed when it is first
 * needed. */
#pragma once

#include "agent/probing.h"

/* A function that does what `function` does, each time in a span that copy() makes: a new reference, or
 * NULL with an exception set. */
PyObject *decorate(struct probing *probing, PyObject *copy, PyObject *function);
