/* The exception table of a code object, from 3.11 on: what handles an exception, by the instruction
 * that it comes from (InternalDocs/exception_handling.md). */
#pragma once

#include "agent/cpython/offsets.h"
#include "fs/remote/memory/view.h"

struct exception_table {
    const uint8_t *p, *end; /* the view's */
};

/* Instructions with the same handler. Places are byte offsets in the bytecode. */
struct handled {
    uint32_t start, end, handler;
    uint32_t depth; /* of the evaluation stack, at the handler */
};

/* Empty where there is none. False: not readable, or of a version without. */
bool exception_table_read(struct view *view, const struct offsets *offsets, uint64_t code,
                          struct exception_table *out);
/* Takes the next ones off it; no two of them share an instruction. False: there are no more. */
bool exception_table_next(struct exception_table *table, struct handled *out);
