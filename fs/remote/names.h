/* Thread names as the target's threading module knows them, read without its help: the
 * interpreter's modules -> threading -> _active, a dict of Thread objects by their ident, which
 * is the pthread_t that the thread state holds too -> _name.
 *
 * The target runs meanwhile. Names are taken over only when a second look at everything that was
 * read finds it unchanged, else the last good ones stay. They are read through a view of their
 * own with two or three system calls, and again only when they are older than the caller wants,
 * so that reading stacks costs nothing for them most of the time. Not thread-safe; the owner's
 * lock guards it. */
#pragma once

#include "fs/remote/object.h"

#define NAMES_MAX 16384              /* threads of one interpreter */
#define NAMES_INTERPRETERS_MAX 64    /* names are known for */
#define NAMES_AGE_NS 50000000        /* a fitting max_age_ns */

struct names;

/* memory must outlive it. -ENOMEM. */
int names_new(const struct memory *memory, struct names **out);
void names_free(struct names *names);

/* Reads the names of one interpreter's threads again if they are older than max_age_ns
 * (CLOCK_MONOTONIC). Never fails: what can't be read has no name. */
void names_refresh(struct names *names, const struct offsets *offsets, uint64_t interp,
                   uint64_t max_age_ns);
/* The name of a thread by its pthread_t, escaped; NULL: none is known. Valid until the next
 * names_refresh(). */
const char *names_find(const struct names *names, uint64_t interp, uint64_t thread_id);
