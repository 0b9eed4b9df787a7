/* The known processes: which pids run CPython.
 *
 * Decided by their memory (target_open()) and remembered (proc/last_look.h), the negative answers
 * too. A process that executes another program becomes another struct process, one that ended is
 * forgotten together with what was cached of it. */
#pragma once

#include "fs/process/process.h"

#define REGISTRY_CORES_MAX 256 /* core files that it is given at most */

struct core;
struct examiner;
struct exited;
struct profile_request;
struct session;

struct registry;

/* -ENOMEM, -EMFILE. */
int registry_new(struct registry **out);
void registry_free(struct registry *registry);
/* From now on processes are read by that one, which stays valid; only before there are other
 * threads. */
void registry_set_examiner(struct registry *registry, const struct examiner *examiner);

/* The process pid, with a reference. -ENOENT: no such process, or it runs no CPython; -EPERM,
 * -EACCES: the daemon may not inspect it; -ETIMEDOUT: it hangs (proc/may_hang.h); -EAGAIN, -EMFILE,
 * -ENOMEM; -EIO: who reads it has crashed. */
int registry_lookup(struct registry *registry, pid_t pid, struct process **out);

/* Forgets what is known of processes that have ended, and gives back the memory that it took. Who
 * looks for processes has that done now and then. */
void registry_tidy(struct registry *registry);

/* Lists the processes, ascending by pid, but for those that hang before it is known what they are;
 * the caller's to deinit. -ENOMEM, or what opening /proc fails with. */
int registry_list(struct registry *registry, struct process_list *out);

/* Shows a core file from now on, which belongs to the registry then, also on failure; where an
 * examiner reads processes nothing of it need have been read. ns: the daemon's own user namespace.
 * Only before there are other threads. On failure why says what is wrong. *out: its process, which
 * stays the registry's. */
int registry_open_core(struct registry *registry, struct core *core, const struct user_ns *ns,
                       struct process **out, struct text *why);
/* Adds the processes of all core files to a list, in their order. -ENOMEM. */
int registry_add_cores(struct registry *registry, struct process_list *list);

/* process_watch(), and from then on the end of one that records something is waited for. */
void registry_watch(struct registry *registry, struct process *process);
/* Has a process looked at whose agent is talked with, whenever that says that it records something
 * else. */
void registry_listen(struct registry *registry, struct process *process, struct session *session);
/* Has `happened` called whenever an agent says that there are rows which readers of events wait
 * for, on a thread of that session; NULL: not any more, once this returns. */
void registry_on_happened(struct registry *registry, void (*happened)(void *arg), void *arg);
/* Notes the end of process pid, if it has come. */
void registry_notice(struct registry *registry, pid_t pid);
/* The processes that have ended and left a recording. */
struct exited *registry_exited(struct registry *registry);

/* A profile was started: from now on those that its process starts are looked for, if that was
 * asked for, and what it executes is seen at once. */
void registry_follow(struct registry *registry);
/* Samples every process from now on (-o profile). -ENOMEM, -EAGAIN. */
int registry_sample_all(struct registry *registry, const struct profile_request *request);
