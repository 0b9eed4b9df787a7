/* Statements that stand on several lines. */
#pragma once

#include "agent/python.h"

/* Where in a code object CPython tells of a line a second time in the midst of a statement, behind lines that are a part of it
 * (the call of a function whose arguments stand on the next lines): byte offsets. How many; 0 also before 3.12, where
 * debuggers tell of each line, too. No exception is set afterwards. */
unsigned statement_again(PyObject *code, int line, int *offsets, unsigned most);
