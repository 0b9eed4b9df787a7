/* What is kept of targets, so that they are read faster the next time: symbols, code objects,
 * copies of memory. All of them together have one budget; over it those lose theirs that were not
 * read for longest.
 *
 * Like the memory that it counts, the list of targets belongs to the process. */
#pragma once

#include <stddef.h>

struct target;

#define CACHES_BYTES_MAX (128u << 20) /* of all targets; the one just read may have more */

/* Counts what a target keeps, now that it was read. The caller holds its lock. */
void caches_note(struct target *target);
/* The target goes: nobody else has it. */
void caches_leave(struct target *target);

/* Gives up the room that reading takes of targets that nobody reads now, and none of what they are
 * read faster with but that. */
void caches_rest(void);

/* Bytes that are counted now. */
size_t caches_size(void);
