/* How the processes of files in all/ and jobs/<job>/ are named: by their ranks, which are few words
 * for many, and the same on all hosts; by pid where they have none. */
#pragma once

#include "fs/process/process.h"

struct who {
    struct process *process; /* a reference */
    struct membership of;
    uid_t uid; /* whose it is; -1: it has ended */
    bool worker;
};

/* Says who a process is, as it is known now. */
void who_init(struct who *who, struct process *process);
void who_deinit(struct who *who);

/* Orders by job, then by rank, the rank itself before its workers; then by pid. Those of no job
 * come last. */
int who_compare(const struct who *a, const struct who *b);
bool who_same_job(const struct who *a, const struct who *b);
/* How many jobs there are among n that ascend. */
size_t who_jobs(const struct who *const *some, size_t n);

/* "ranks 0-2,4-7", "rank 3, workers of rank 3", "pid 12, 14": n that ascend; with_jobs: behind the
 * names of their jobs. -ENOMEM. */
int who_add(const struct who *const *some, size_t n, bool with_jobs, struct text *out);
/* "Job 10.0.0.1:29500: ranks 0-2,4 of 6, not here: 3,5", as a line: n of one job, at least one. */
int who_add_job(const struct who *const *some, size_t n, struct text *out);
