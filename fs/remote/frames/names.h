/* Thread names as the target's threading module knows them, read without its help: the
 * interpreter's modules -> threading -> _active, a dict of Thread objects by their ident, which
 * is the pthread_t that the thread state holds too -> _name.
 *
 * The target runs meanwhile. A name is taken over only when two readings agree on it, of which the
 * last one of before may be the first. They are read through a view of their own with two or
 * three system calls, and again only when they are older than the caller wants, so that reading
 * stacks costs nothing for them most of the time.
 *
 * A pthread_t is soon used again, the kernel's number of a thread is not. So a name belongs to
 * the kernel thread that was seen to have the pthread_t before the name was read and that still
 * lived after it; for any other thread with that pthread_t names are read anew.
 *
 * Not thread-safe; the owner's lock guards it. */
#pragma once

#include "fs/remote/objects/object.h"

#define NAMES_MAX 16384           /* threads of one interpreter */
#define NAMES_INTERPRETERS_MAX 64 /* names are known for */
#define NAMES_AGE_NS 50000000     /* a fitting max_age_ns */

struct names;

/* memory must outlive it. -ENOMEM. */
int names_new(const struct memory *memory, struct names **out);
void names_free(struct names *names);

/* Begins a round of names_find(), for threads that were seen by now. Reads the names of one
 * interpreter's threads again if they are older than max_age_ns (CLOCK_MONOTONIC). Never fails:
 * what can't be read has no name. */
void names_refresh(struct names *names, const struct offsets *offsets, uint64_t interp,
                   uint64_t max_age_ns);
/* The name of the thread tid (in the daemon's pid namespace; 0: not known) that has this
 * pthread_t, escaped; NULL: none is known. Valid until the next names_refresh() or names_find(). */
const char *names_find(struct names *names, const struct offsets *offsets, uint64_t interp,
                       uint64_t thread_id, pid_t tid);
