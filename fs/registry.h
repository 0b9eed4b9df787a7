/* The known processes: which pids run CPython.
 *
 * Decided by their memory (target_open()) and remembered with a sighting, the negative answers
 * too. A process that executes another program becomes another struct process, one that ended is
 * forgotten together with what was cached of it. */
#pragma once

#include "fs/process.h"

struct registry;

/* -ENOMEM. */
int registry_new(struct registry **out);
void registry_free(struct registry *registry);

/* The process pid, with a reference. -ENOENT: no such process, or it runs no CPython; -EPERM,
 * -EACCES: the daemon may not inspect it; -EMFILE, -ENOMEM. */
int registry_lookup(struct registry *registry, pid_t pid, struct process **out);

/* Processes, each with a reference; NULL: it was taken out. */
struct process_list {
    struct process **items;
    size_t n, alloc;
};

void process_list_deinit(struct process_list *list);

/* All of them, ascending by pid; the caller's to deinit. -ENOMEM, or what opening /proc fails with. */
int registry_list(struct registry *registry, struct process_list *out);
