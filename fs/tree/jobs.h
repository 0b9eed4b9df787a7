/* The names below jobs/ and by-rank/, and whose processes a file in all/ or jobs/<job>/ is about.
 */
#pragma once

#include "fs/process/jobs.h"
#include "fs/tree/names.h"

extern const struct naming job_names;      /* <job> */
extern const struct naming job_rank_names; /* jobs/<job>/ranks/<rank> */
extern const struct naming worker_names;   /* jobs/<job>/workers/<worker> */
/* by-rank/<rank>: the rank itself of the job that started last. Who claims a rank in a job of their
 * own hides nobody else's: the caller's own jobs come first, and then those that it may look at. */
extern const struct naming rank_names;

/* exited/by-rank/<rank>: the one of that rank that has ended last. */
extern const struct naming exited_rank_names;

/* The job that a file is below; NULL: it is of all processes. */
const char *context_job(const struct file_context *context);
/* A job's own name, and whose it is, for who waits for what will be in it. -ESRCH: it has ended. */
int context_job_identity(const struct file_context *context, char job[JOB_NAME_MAX], uid_t *uid);
/* The processes that the file is about and that those may look at in whose name it is read or
 * written: ascending by pid. Errors as job_processes(). */
int context_processes(const struct file_context *context, struct process_list *out);
