/* The with statements that a Python frame stands in.
 *
 * While one runs its block, what it will call at the end, __exit__ of its manager, lies on the
 * frame's evaluation stack, and a handler says at which depth: in the frame's block stack up to
 * 3.10, in the code's exception table after (InternalDocs/exception_handling.md). Before a block
 * begins, and once its end is being called, the handler is none of the frame's. So a manager that
 * is found here has been entered, and its __exit__ hasn't been called. */
#pragma once

#include "fs/remote/frames/frames.h"
#include "fs/remote/objects/object.h"

#define WITH_BLOCKS_MAX 64 /* of one frame */
/* Entries of exception tables, or instructions up to 3.10, that are looked at in one reading: some
 * ten milliseconds. Programs choose how many there are. */
#define WITH_ENTRIES_MAX (1u << 22)

/* manager: whose __exit__ (or __aexit__: `async`) it is; at: byte offset of an instruction on the
 * line of the with statement, -1: not known. */
typedef int with_visit(void *arg, uint64_t manager, bool async, int32_t at);

/* Visits them, innermost first. Takes the entries that it looks at from *entries. Returns what
 * visit returned first other than 0; else 0; -EFAULT: something was not readable; -E2BIG: *entries
 * is used up. */
int with_blocks_iterate(struct view *view, const struct offsets *offsets,
                        const struct raw_frame *frame, uint32_t *entries, with_visit *visit,
                        void *arg);

/* Queues what n frames need for that, so that it costs few copies. */
void with_blocks_prefetch(struct view *view, const struct offsets *offsets,
                          const struct raw_frame *frames, size_t n);
