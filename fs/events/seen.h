/* What is seen of a process from outside, in one look after the other: threads that begin and end,
 * and children that run CPython. What comes and goes between two looks isn't. */
#pragma once

#include "fs/base/text.h"
#include "fs/process/process.h"

#define SEEN_THREADS_MAX 16384u /* of a process that are told apart */
#define SEEN_CHILDREN_MAX 4096u /* the same */
#define SEEN_LINES_MAX 256u     /* told of one look: of what is left out no end is told either */
#define SEEN_CHILDREN_NS 500000000u /* between two looks for children */

struct registry;
struct seen;

/* As it is now: of that only the end is told. NULL: no memory. */
struct seen *seen_new(struct process *process);
void seen_free(struct seen *seen); /* NULL is fine */
/* Adds a line for each that came or went since (format/event.h). The agent's own threads are none.
 * A thread is told of once it was seen twice: until then it may turn out to be the agent's. */
void seen_look(struct seen *seen, struct registry *registry, struct text *out);
