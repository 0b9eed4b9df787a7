/* Bits of co_flags of a code object: Include/cpython/code.h of CPython, which the limited API
 * leaves out. They are the same in all versions. */
#pragma once

#define CO_OPTIMIZED 0x0001 /* a function's: its locals aren't a dict */
#define CO_GENERATOR 0x0020
#define CO_COROUTINE 0x0080
#define CO_ITERABLE_COROUTINE 0x0100 /* types.coroutine() */
#define CO_ASYNC_GENERATOR 0x0200
