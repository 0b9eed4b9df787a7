/* The names that Cython gives to the C functions it makes, as they were written.
 *
 * __pyx_f_ (cdef), __pyx_pw_ and __pyx_pf_ (def, its wrapper and its body), then each name of the
 * scope with its length and a `_`, then the function's own: after a number of no meaning in pw and
 * perhaps in pf, which may look like a further scope. Source: Cython's Compiler/Symtab.py, mangle()
 * and next_id(). */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Writes "package.module.Class.function" to out, which has room for `room` bytes. False, and
 * nothing written: it is no such name, can be read in two ways, or is too long. */
bool cython_name(const char *symbol, char *out, size_t room);
