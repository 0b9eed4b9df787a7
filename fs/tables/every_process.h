/* The rows of every process at once: host, pid and rank stand in front of each. */
#pragma once

#include "fs/sql/engine.h"

#define EVERY_PROCESS_THREADS 8         /* processes that one statement reads side by side */
#define EVERY_PROCESS_THREADS_TOTAL 128 /* of all statements, and of readings that hang */
/* The deadline for all processes; who isn't read by then is left out. */
#define EVERY_PROCESS_DEADLINE_NS 5000000000ull

struct access;
struct principals;
struct registry;

/* Whose rows, and for whom. */
struct every_process {
    struct registry *registry; /* all known processes */
    const struct access *access;
    struct principals *principals;
    const char *job;  /* whose processes alone (job_processes()); NULL: all */
    const char *file; /* under whose name a process's errors say why it has no rows */
};

/* A provider; arg is a const struct every_process. Only processes that all of them may look at have
 * rows; of tables that are recorded those that have ended, too. One that can't be read, or not in
 * time, has none, and its errors say why. */
int every_process_provide(void *arg, struct wanted *const *wanted, size_t n,
                          const struct stop *stop, struct text *why);
