/* What went wrong in Python, in words for people. */
#pragma once

#include "agent/cpython/python.h"

/* Copies a str, cut at a whole character; NULL: nothing. No exception is set after it. */
void words_copy(PyObject *text, char *words, size_t size);
/* The name of an exception's type, with its module if that isn't builtins. Leaves no exception. */
void exception_type_copy(PyObject *exception, char *words, size_t size);
/* Describes the Python exception that is set, and clears it. */
void exception_words(char *words, size_t size);
