/* The first part of a walk: interpreters, their GILs, their thread states. These are linked lists,
 * read one after the other; what a stack begins with is noted for the second part (frames.c). */
#pragma once

#include "fs/remote/frames/frames.h"

#define CHUNK_SIZE 16384 /* DATA_STACK_CHUNK_SIZE, Python/pystate.c */

/* Fills in walk's stacks, without frames, and GILs. 0; -EAGAIN: the lists made no sense; -ESRCH,
 * -EPERM, -ENOMEM. */
int thread_list_read(struct walk *walk, struct view *view, const struct runtime *rt);
/* Begins one of its stacks anew. Errors as above. */
int thread_list_again(const struct walk *walk, struct stack *stack, struct view *view,
                      const struct runtime *rt);
