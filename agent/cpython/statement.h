/* Statements that stand on several lines. */
#pragma once

#include "agent/cpython/python.h"

/* Finds where CPython reports `line` again in the middle of a statement, after lines that belong to
 * the same statement: at the call of a function whose arguments stand on the following lines.
 * Writes at most `most` byte offsets and returns how many. Before 3.12 it returns 0: debuggers
 * report each such line there. No exception is set afterwards. */
unsigned statement_again(PyObject *code, int line, int *offsets, unsigned most);
