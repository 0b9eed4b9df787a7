/* The distributed jobs of this machine, as their processes say (membership.h), and who of them is
 * which rank.
 *
 * Of the processes that say they are of one rank one is the rank itself. The others work for it,
 * and have its environment because it started them (data loaders, compilers), or are what an
 * earlier start of the job has left. Processes of different users are never of one job, whatever
 * they say. */
#pragma once

#include "fs/process/registry.h"

#define JOB_WORD_MAX (JOB_NAME_MAX + 12)

struct job_member {
    struct process *process; /* a reference */
    struct membership of;
    uid_t uid;       /* whose it is */
    bool worker;     /* not the rank itself */
    unsigned number; /* of a worker: which of those of its rank, from 0 */
};

/* Ascending by job, user, rank; the rank itself is before its workers. */
struct job_members {
    struct job_member *items;
    size_t n, alloc;
};

/* Whether somebody may know of a process. */
typedef bool job_sees(void *arg, struct process *process);

/* All members of jobs of which the process is seen; sees NULL: all. What each says is read anew
 * where it may have changed. -ENOMEM, or what listing processes fails with. The caller's to deinit.
 */
int job_members_list(struct registry *registry, job_sees *sees, void *arg, struct job_members *out);
void job_members_deinit(struct job_members *members);

/* The first one behind it that is of another job. */
size_t job_end(const struct job_members *members, size_t member);
/* The name of a member's job for uid: the job's own, or, where that is another user's as well,
 * perhaps one with the number of its user: "10.0.0.1:29500~1000". */
void job_word(const struct job_members *members, size_t member, uid_t uid, char word[JOB_WORD_MAX]);
/* Finds a job by that: how many members it has, and the first of them. 0: there is no such job. */
size_t job_find(const struct job_members *members, const char *word, uid_t uid, size_t *first);

/* The processes of a job, ascending by pid, of those that are seen; word NULL or "": all there are,
 * of a job or not, seen or not. Of each is known then which rank it says it is now, and whether it
 * only works for that. Errors as job_members_list(). */
int job_processes(struct registry *registry, const char *word, uid_t uid, job_sees *sees, void *arg,
                  struct process_list *out);

/* Learns what all processes say now, and who of them is the rank itself: for who asks of one
 * process what it is (process_is_worker()). Errors as job_members_list(). */
int jobs_learn(struct registry *registry);
/* The rank that a process is itself, as it says now; *rank -1: it has none, or only works for one.
 * Errors as job_members_list(): then nobody knows. */
int job_own_rank(struct registry *registry, struct process *process, int64_t *rank);

/* The job's own name, and whose it is. -ENOENT: there is no such job. */
int job_identity(struct registry *registry, const char *word, uid_t uid, job_sees *sees, void *arg,
                 char job[JOB_NAME_MAX], uid_t *owner);

/* The user whose a process is: only processes of one user are of one job. False: it has ended. */
bool job_owner(const struct process *process, uid_t *uid);
/* Whether a process is in that job of uid's, as far as is known of it by now. */
bool job_has(const char *job, uid_t uid, struct process *process);
