/* The rows of an exception that nobody caught: of itself, of those before it, of its frames and what they bind. */
#pragma once

#include "agent/raised.h"

#define CRASH_FRAMES_INNER 96   /* recorded of one traceback from its innermost end, and ... */
#define CRASH_FRAMES_OUTER 32   /* ... from its outermost one */
#define CRASH_CHAIN_MAX 16      /* exceptions before it: causes and contexts; and as many in it, if it is a group; ... */
#define CRASH_GROUPS_MAX 8      /* groups in groups */
#define CRASH_CHAIN_FRAMES 16   /* ... and frames recorded of each, as many again from its outermost end */
#define CRASH_NAMES_MAX 200     /* variables of one frame */
#define CRASH_BYTES_MAX (512u << 10) /* of all values; no frame's variables are begun beyond */
#define CRASH_TRACEBACK_MAX (1u << 16) /* entries that are looked through */

/* What it takes to read exceptions in an interpreter. */
struct crash_reader {
    struct raised raised;
    struct attribute suppress_context; /* of BaseException */
    struct attribute members;          /* of BaseExceptionGroup, since 3.11: its exceptions */
};

/* 0, or -EOPNOTSUPP. */
int crash_reader_init(struct crash_reader *reader);
void crash_reader_clear(struct crash_reader *reader);

/* Writes them, as the crash of that number in this thread; nothing of the program is called. With the GIL; leaves no
 * exception. traceback may be NULL. */
void crash_rows_write(struct crash_reader *reader, int64_t number, PyObject *exception, PyObject *traceback);
