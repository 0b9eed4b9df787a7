/* Processes that have ended and left a recording: kept for a while, and while
 * they are not too much: then who holds the most loses the oldest of theirs, so that nobody drives
 * out what others left.
 *
 * A list by age, oldest first. Of one pid only the last is kept. */
#pragma once

#include "fs/process/process.h"

struct exited_limits {
    uint64_t age;                                /* ns */
    size_t bytes;                                /* of all rings together */
    unsigned n;                                  /* processes */
    size_t (*size)(struct recording *recording); /* in bytes */
};

/* An hour, 256 MiB, 1,024. */
extern const struct exited_limits exited_limits;

struct exited;

/* limits must outlive it. -ENOMEM. */
int exited_new(const struct exited_limits *limits, struct exited **out);
void exited_free(struct exited *exited);

/* Keeps a process, with a reference of its own; `now` is of CLOCK_MONOTONIC, ns, here as below. Of
 * one whose rings alone are over the limit, or take more than others leave, only the process is
 * kept. */
void exited_add(struct exited *exited, struct process *process, uint64_t now);
/* Drops what has become too old. Returns in how many ns the next one gets too old; UINT64_MAX: none
 * is left. */
uint64_t exited_sweep(struct exited *exited, uint64_t now);
/* Drops one: its rings are let go of at once, whoever still looks at it. False: it isn't kept. */
bool exited_drop(struct exited *exited, struct process *process);

/* The one of that pid, with a reference; NULL: none. */
struct process *exited_find(struct exited *exited, pid_t pid, uint64_t now);
/* All, ascending by pid; the caller's to deinit. -ENOMEM. */
int exited_list(struct exited *exited, uint64_t now, struct process_list *out);
/* Whether it is kept. */
bool exited_has(struct exited *exited, const struct process *process);
