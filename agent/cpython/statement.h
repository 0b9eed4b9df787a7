/* Statements that stand on several lines, and loops that stand on one. */
#pragma once

#include "agent/cpython/python.h"

/* Finds where CPython reports `line` again in the middle of a statement, after lines that belong to
 * the same statement: at the call of a function whose arguments stand on the following lines.
 * Writes at most `most` byte offsets and returns how many. Before 3.12 it returns 0: debuggers
 * report each such line there. No exception is set afterwards. */
unsigned statement_again(PyObject *code, int line, int *offsets, unsigned most);
/* The line that a jump between two offsets, [bytes], begins again: it leads back to the line that
 * it is on, as a loop's does that stands on one line. 0: none; so it is in a comprehension, which
 * is in the midst of an expression. From 3.12 on. No exception is set afterwards. */
int statement_jump(PyObject *code, int from, int to);
