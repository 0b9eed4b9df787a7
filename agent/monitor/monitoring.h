/* Hearing by sys.monitoring, from CPython 3.12 on: three tool ids in an interpreter, one for what
 * is recorded and for breakpoints, another one for steps, a third for values that are compared at
 * lines; and in each a function of C for each kind of event.
 *
 * An id is one that no other tool has, taken with the first event and given back with the last one.
 *
 * What CPython calls is a Python function whose vectorcall is ours: the callee of least cost, and
 * one that works at the limit of recursion, where a built-in function would raise a RecursionError
 * instead of the program's own exception. It becomes an ordinary function without effect when it is
 * given up, so whoever still holds it then refers to nothing of this library. Which interpreter,
 * tool and event is meant is known by the function, so there is one for each, for as long as
 * anybody hears of it. */
#pragma once

#include "agent/monitor/hear.h"

/* As those of hear.h. */
int monitoring_begin(struct interpreter *interpreter, const struct hearer *hearer,
                     unsigned everywhere, unsigned local);
int monitoring_code(struct interpreter *interpreter, const struct hearer *hearer, PyObject *code,
                    unsigned events);
void monitoring_end(struct interpreter *interpreter, const struct hearer *hearer);
