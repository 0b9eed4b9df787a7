/* What a statement's rows of one process are made from: everything that it needs, read at one
 * moment.
 *
 * The row sources of the tables that a statement uses say together what that is (struct plan).
 * Stacks, and whatever is read within their moment (locals, tasks, modules), show the process as it
 * was at one instant; what /proc says, and what was recorded, is read right after it. */
#pragma once

#include "fs/recording/held_threads.h"
#include "fs/remote/tasks/asyncio.h"
#include "fs/remote/tasks/tasks.h"
#include "fs/remote/waits/waits.h"
#include "fs/sql/engine.h"

struct looker;
struct process;
struct recording;

/* What has to be read. */
struct plan {
    bool moment;  /* the interpreter stands still for `within`; the next five say more */
    bool threads; /* scene->snapshot */
    bool native;  /* ... with native frames */
    bool since;   /* ... and since when they stand */
    bool tasks;   /* scene->tasks */
    bool waits;   /* scene->waits */
    bool some;    /* of all that: it has been narrowed to the thread `tid` (0: all threads) and to
                     `depth` frames of each stack (0: all) */
    pid_t tid;
    size_t depth;
};

/* Plans for a source that needs stacks: which thread's, and how many frames of each, follow from
 * the bounds of these columns; -1: there is no such column, and all are needed. */
void plan_stacks(struct plan *plan, const struct use *use, int tid, int depth);

/* Whose rows are asked for. */
struct subject {
    struct process *process;     /* NULL: it has ended, or there is none */
    struct target *target;       /* NULL with process */
    struct recording *recording; /* NULL: nothing was recorded */
    const struct looker *looker; /* for whom; NULL with process */
    const struct membership
        *left;           /* which it was, of one that has ended; NULL with process alone */
    struct waits *waits; /* takes over the waits, instead of rows being made of them: who asks
                            looks for their other ends, and makes them; else NULL */
};

struct scene {
    const struct tables *tables;
    struct process *process;
    struct target *target;
    struct recording *recording;
    const struct looker *looker;
    const struct membership *left;
    struct waits *told; /* as in struct subject */
    const struct stop *stop;
    const struct table *table; /* whose `fill` runs */
    struct plan plan;
    struct snapshot *snapshot; /* without the agent's threads */
    struct held_list agent;    /* whom it holds, and its own, if stacks are read */
    struct tasks tasks;        /* of plan.tasks; only as long as `gather` runs */
    struct waits waits;        /* of plan.waits */
    bool torn; /* no moment was found in which nothing changed: what `within` and `gather` make
                  rows of may be wrong, and they say so */
    struct text *why;
    unsigned answered;    /* calls of value(), a bit each, whose frame the moment has */
    int call_error;       /* of the first of them that names its frame and leads nowhere ... */
    struct text call_why; /* ... in words */

    /* the reading's own */
    struct wanted *const *wanted;
    size_t nwanted;
    bool passive; /* tables are wanted that take a process which is there */
    struct asyncio asyncio;
    unsigned bad; /* moments that were not good enough */
};

/* The target of a subject: read, or only held where it is somebody else who reads the process. A
 * reference; NULL: it has ended. */
struct target *scene_target(struct process *process);
/* Looks for who is at the other ends of a process's waits, in the name of who looks: as
 * waits_between(). */
int scene_find_ends(const struct process *process, const struct looker *of, struct waits *waits);
/* Whether rows of the table are read by somebody else, too, who is only waited for. Not where the
 * daemon traces the process: then only it can stop its threads. */
bool scene_is_examined(const struct process *process, const struct table *table);
/* Fills wanted[i]->rows, which are begun, all of one moment. 0 or -errno, and why says more: -ESRCH
 * also if tables are wanted that take a process which is there. */
int scene_fill(const struct tables *tables, const struct subject *of, struct wanted *const *wanted,
               size_t n, const struct stop *stop, struct text *why);

/* A provider of one process's rows; arg is a const struct subject. */
int scene_provide(void *arg, struct wanted *const *wanted, size_t n, const struct stop *stop,
                  struct text *why);
