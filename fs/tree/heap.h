/* What the files below heap/ share. */
#pragma once

#include "fs/remote/heap/census.h"
#include "fs/tree/names.h"

/* heap/diff/<marks>: FROM..TO, of marks that there are, TO also now. */
extern const struct naming heap_diffs;
/* heap/referrers/<object>: an address, or a type's name. */
extern const struct naming heap_objects;

file_render heap_census_render, heap_diff_render, heap_referrers_render, heap_sites_render;

/* -EINTR once interrupt, a struct interrupt, is raised: a scan is not wanted any more. */
int heap_unwanted(const void *interrupt);
/* Puts what failed into context->why; returns error. */
int heap_error(struct file_context *context, int error);
/* Takes a census of the context's process, wherever that is read. As census_take(), with words. */
int heap_take_census(struct file_context *context, struct census *out);
/* Reads what heap_diff_say() has told: names and numbers, no totals. -EIO: it is none. The caller
 * owns what is in *out in any case. */
int heap_census_read(const char *text, struct census *out);
/* Has the agent sample allocations, one in `mean` bytes, anew; or end that: 0, and no agent is
 * brought in for it. Says so. 0 or -errno, with words. */
int heap_sites_order(struct file_context *context, uint64_t mean, struct text *said);
/* The marks that there are, a line; nothing where there is none. */
void heap_marks_text(struct target *target, struct text *out);
