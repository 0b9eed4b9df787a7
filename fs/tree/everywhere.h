/* What is written to a file of all/ or jobs/<job>/ is done in many processes, each by itself: in
 * those that its opener and its writers may control. Threads do that side by side, since one that
 * doesn't let go of its GIL takes its time; and one that hangs, or that isn't done in a minute, is
 * said to have failed. */
#pragma once

#include "fs/base/ranges.h"
#include "fs/tree/file.h"
#include "fs/tree/who.h"

/* One process, and what came of it there. */
struct everywhere_item {
    struct who who;
    struct text said, why;
    struct outcome outcome;
    int error;
    bool told; /* what came of it */
};

/* What is to be done: of is the same for all, and isn't changed. Otherwise as file_run. */
typedef int everywhere_run(const void *of, struct file_context *context, struct text *said,
                           struct outcome *outcome);

/* What is done in many processes. Some of it may be left behind in a process that hangs: so all
 * that it uses is its own. */
struct everywhere {
    struct everywhere_item *items; /* in the order of who_compare() */
    size_t n, njobs;
    /* the implementation's own */
    struct everywhere_own *own;
};

/* free_of: releases `of`, which it takes over, also on failure; NULL: nothing has to be done.
 * -ENOMEM. */
int everywhere_new(const struct file_context *context, everywhere_run *run, void *of,
                   void (*free_of)(void *of), struct everywhere **out);
void everywhere_unref(struct everywhere *everywhere);
static inline void cleanup_everywhere(struct everywhere **everywhere)
{
    everywhere_unref(*everywhere);
}
#define _cleanup_everywhere_ _cleanup_(cleanup_everywhere)

/* Lists the processes that it is for: all that may be controlled; of a job the ranks themselves.
 * ranks: of all jobs these ranks themselves; NULL: all. -ESRCH: there are none, and context->why
 * says so. */
int everywhere_list(struct everywhere *everywhere, struct file_context *context,
                    const struct ranges *ranks);
/* Lists the processes that are wanted, whether they may be controlled or only looked at. */
int everywhere_list_wanted(struct everywhere *everywhere, struct file_context *context,
                           bool (*is_wanted)(struct process *process));

/* Does it, and waits until it is done. What failed is among the errors of its process, too. */
void everywhere_do(struct everywhere *everywhere, const struct interrupt *interrupt);

/* Adds what was said, equal answers once, behind who gave it: "ranks 0-2 (3): 153". Failures are
 * answers, too; one that all have in common is in why. 0: it was done somewhere, or, if strict,
 * everywhere; else an error, and why says how many. */
int everywhere_tell(struct everywhere *everywhere, bool strict, struct text *said,
                    struct text *why);

/* Reads "on RANKS" at the beginning of a line. 0: there is none; 1: there is, and *rest is what is
 * behind it; -EINVAL: *wrong is what isn't a rank. */
int everywhere_read_on(const char *line, size_t size, struct ranges *out, const char **rest,
                       const char **wrong);
