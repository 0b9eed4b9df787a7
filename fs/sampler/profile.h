/* The profile of one process: its samples, and the sampler that takes them, if one runs. What was
 * sampled stays when that ends, and when the process does. Thread-safe. */
#pragma once

#include "fs/sampler/request.h"

struct profile;

/* Makes a profile, of which nothing is sampled yet. -ENOMEM. */
int profile_new(pid_t pid, struct profile **out);
void profile_free(struct profile *profile);

/* Starts, or goes on with other options; what there is stays. duration: ns, 0: until it is told
 * otherwise. -ESRCH: the process has ended; errors as sampler_start(). */
int profile_start(struct profile *profile, struct target *target,
                  const struct sampler_options *options, uint64_t duration,
                  const struct interrupt *interrupt, struct text *why);
/* Ends the sampling. False: it didn't run. */
bool profile_stop(struct profile *profile);
/* Ends it if it is the agent that takes the samples, which is to be detached; profile_resume() goes
 * on with it. -EBUSY: it doesn't end just now. */
int profile_leave_agent(struct profile *profile);
/* The process has ended: nothing can be started any more. NULL is fine, here and next. */
void profile_end(struct profile *profile);
/* The process has executed another program: what there is goes over to that, with a mark `exec`. */
void profile_hand_over(struct profile *from, struct profile *to);
/* Goes on with what was handed over, if it was still sampled. */
void profile_resume(struct profile *profile, struct target *target);

/* -ENODATA: nothing has been sampled yet. */
int profile_clear(struct profile *profile);
/* -ENODATA; errors as store_mark(). */
int profile_mark(struct profile *profile, const char *name);

/* What it has sampled, with a reference; NULL: nothing was ever started. What is pending is taken
 * in first. */
struct store *profile_store(struct profile *profile);
/* profile_store() without taking in what is pending, so that it never waits, and what files show
 * that name no mode. For who comes again: from now on that is taken in within 0.2 s. */
struct store *profile_peek(struct profile *profile, enum profile_mode *shown);
/* Whether anything was ever started. */
bool profile_any(struct profile *profile);

/* Whether it is sampled now. */
bool profile_running(struct profile *profile);
/* Whether to try and start it unasked: not again so soon after the last time that somebody did. */
bool profile_try(struct profile *profile, uint64_t now, uint64_t again);
/* The last try to begin doesn't count. */
void profile_forgive(struct profile *profile);
/* Says that it was started because its parent's was, with `children`. */
void profile_adopt(struct profile *child, const struct profile *parent);
bool profile_is_child(struct profile *child, const struct profile *parent);

struct profile_state {
    bool started; /* ever; else nothing else is set */
    bool running;
    struct sampler_options options; /* of the last time */
    uint64_t asked_for;             /* ns; 0: no end was asked for */
    uint64_t since, until; /* CLOCK_MONOTONIC, ns, of the last time; until: when it ended, or
                              will, 0: not known */
    const char *source;    /* "timer" */
    struct text why;       /* why it is no better one; owned by the caller */
    struct sampler_figures figures; /* of the last time */
    struct store_stats stats;
};

/* -ENOMEM. */
int profile_look(struct profile *profile, struct profile_state *out);
void profile_state_deinit(struct profile_state *state);
