/* Writes the rows of an exception that nobody caught: of the exception, of its causes and contexts,
 * of their frames, and of the variables in these. */
#pragma once

#include "agent/cpython/exception_text.h"

#define CRASH_FRAMES_INNER 96 /* recorded of one traceback from its innermost end, and ... */
#define CRASH_FRAMES_OUTER 32 /* ... from its outermost one */
/* exceptions before it: causes and contexts; and as many in it, if it is a group; ... */
#define CRASH_CHAIN_MAX 16
#define CRASH_GROUPS_MAX 8 /* groups in groups */
/* ... and frames recorded of each, as many again from its outermost end */
#define CRASH_CHAIN_FRAMES 16
#define CRASH_NAMES_MAX 200            /* variables of one frame */
#define CRASH_BYTES_MAX (512u << 10)   /* of all values; no frame's variables are begun beyond */
#define CRASH_TRACEBACK_MAX (1u << 16) /* entries that are looked through */

/* The attributes by which exceptions of an interpreter are read. */
struct crash_reader {
    struct exception_text raised;
    struct attribute suppress_context; /* of BaseException */
    struct attribute members;          /* of BaseExceptionGroup, since 3.11: its exceptions */
};

/* 0, or -EOPNOTSUPP. */
int crash_reader_init(struct crash_reader *reader);
void crash_reader_clear(struct crash_reader *reader);

/* Writes the rows of crash `number`, which happened in the calling thread. Runs no code of the
 * program. traceback may be NULL. With the GIL; no exception is set afterwards. */
void crash_rows_write(struct crash_reader *reader, int64_t number, PyObject *exception,
                      PyObject *traceback);
