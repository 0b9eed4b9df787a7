/* C++, Rust and Cython symbol names as their authors wrote them.
 *
 * Uses libiberty (libiberty-dev): a static library without dependencies that demangles both
 * languages into a callback, so that the length of what a hostile name expands to is bounded;
 * __cxa_demangle would allocate it first, and would load the C++ runtime into the daemon. */
#pragma once

#include <stddef.h>

#define DEMANGLE_MAX 1024 /* bytes of a name, mangled or not, with the NUL; longer ones are cut */
/* Bytes of a name that is demangled; a longer one is shown as it is. libiberty calls itself for
 * each part of a name, and one of 1,007 bytes can take more than 256 KiB of stack. */
#define DEMANGLE_INPUT_MAX 256

/* The name to show for a symbol: demangled, without parameters and without a version
 * ("@@GLIBC_2.34"), cut to fit. out has room for DEMANGLE_MAX. */
void demangle(const char *mangled, char *out);
