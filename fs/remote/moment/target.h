/* One process that is looked at, alive or as a core file has it.
 *
 * Identity is pid + start time, and a pidfd that keeps the two apart for good: a recycled pid is
 * a new target. Its parts (mappings, runtime, caches) are shared by all readers under `lock`, which
 * is held for one read, never across a wait without a deadline. */
#pragma once

#include "fs/base/text.h"
#include "fs/proc/lwp.h"
#include "fs/proc/maps.h"
#include "fs/remote/frames/frames.h"
#include "fs/remote/memory/memory.h"
#include "fs/remote/objects/runtime.h"
#include "fs/trace/pacing.h"

#include <pthread.h>
#include <stdatomic.h>

struct attacher;
struct code_cache;
struct core;
struct import_list;
struct moment;
struct names;
struct native;
struct sampler_source;
struct view;

#define TARGET_AUXV_MAX 512 /* bytes; the kernel's saved_auxv has 416 */

/* The first member of what somebody else keeps of a target, and that goes with it. */
struct target_kept {
    void (*free)(struct target_kept *kept);
};
enum target_keeper {
    KEPT_BY_LINK,    /* of its agent */
    KEPT_BY_SINCE,   /* since when its threads stand */
    KEPT_BY_HEAP,    /* censuses to compare with */
    KEPT_BY_STATUS,  /* why it can't go on */
    KEPT_BY_SOURCES, /* where its code comes from */
    TARGET_KEEPERS,
};

/* Numbers that no process has (the kernel's PID_MAX_LIMIT is 4,194,304): who asks for one of a core
 * file's finds nothing, in whatever way. */
#define TARGET_CORE_PID 0x40000000

struct target {
    pid_t pid;
    struct core *core; /* owned; NULL: it is a process that lives. Its number is core->pid then, and
                          pid is one that nothing has */
    uint64_t start_time; /* clock ticks since boot, field 22 of /proc/PID/stat */
    /* what the kernel told its program of where and as whom it runs (getauxval(3)): its own copy,
     * which the program can't change; another program is told otherwise */
    char auxv[TARGET_AUXV_MAX];
    ssize_t auxv_size;
    int pidfd;
    const struct attacher *attacher; /* who puts agents in (link/attach.h); NULL: this process */
    const struct sampler_source
        *sampled_by; /* who samples it (sampler/sampler.h); NULL: the same */
    atomic_uint refs;
    _Atomic(struct target_kept *) kept[TARGET_KEEPERS]; /* NULL: nothing yet */

    atomic_bool found;       /* there is all that target_find() brings, for good */
    pthread_mutex_t tracing; /* held while a thread of it is stopped by us, after `lock` if both */
    pthread_mutex_t lock;    /* guards what follows */
    struct memory memory;    /* there before, too, as is `foreign` */
    struct maps maps;
    struct runtime runtime;
    bool foreign;      /* lives in another pid namespace: it numbers its threads itself */
    struct view *view; /* what a moment copied */
    struct walk walk;  /* the last one */
    /* what was read along with it (snapshot_options.work): the view still has that; else NULL */
    int (*along)(void *arg, const struct moment *moment, const struct lwp_list *lwps);
    struct reading_cost {   /* of the last snapshot, in nanoseconds */
        uint64_t python_ns; /* to find a moment and read the Python stacks */
        uint64_t pause_ns;  /* for which threads were stopped meanwhile, in all */
        uint64_t total_ns;
    } cost;
    struct pacing pacing; /* when it may be paused again */
    struct code_cache *codes;
    struct import_list *imports; /* as they were listed last (imports.h); NULL: never */
    struct names_at {            /* where in their modules' dicts they were (dict_lookup_again()) */
        uint64_t environ, pg_map, pg_group_ranks, pg_names, init_method;
    } names_at;
    struct names *names;
    struct native *native;

    /* of caches.h, guarded by that */
    struct target *newer, *older; /* by when they were read; NULL: none, or not listed */
    size_t cached;                /* bytes */
};

/* Opens the process pid and finds its interpreter. -ESRCH: no such process, or a zombie; -ENOENT:
 * it runs no CPython; -EPERM, -EACCES: the daemon may not inspect it; -ENOMEM, -EMFILE. The caller
 * owns one reference. */
int target_open(pid_t pid, struct target **out);
/* Holds on to process pid, of which nothing is read: there is all of the target but its mappings,
 * its runtime and caches. Errors as target_open(). The caller owns one reference. */
int target_hold(pid_t pid, struct target **out);
/* Finds the interpreter of one that is held, unless that was done; any thread may. Errors as
 * target_open(). */
int target_find(struct target *target);
/* target_open() of a core file, which belongs to the target from now on, also on failure; number:
 * the how manieth it is. -ENOENT: it is none of CPython, or its files are missing. */
int target_open_core(struct core *core, unsigned number, struct target **out);
/* The same of one that another process reads: nothing is looked for in it. */
int target_hold_core(struct core *core, unsigned number, struct target **out);
struct target *target_ref(struct target *target);
void target_unref(struct target *target);
/* Has kept->free() called when the target goes, and target->kept[keeper] be it from now on. Returns
 * what is kept: another thread may have been faster, and then `kept` stays the caller's. */
struct target_kept *target_keep(struct target *target, enum target_keeper keeper,
                                struct target_kept *kept);

/* The number that the process has, or had: what is shown. */
pid_t target_number(const struct target *target);
/* The threads of a target: as lwp_list_read(). Of a core file all is told that it has, whatever is
 * asked. */
int target_lwps(const struct target *target, enum lwp_detail detail, struct lwp_list *out);

/* Whether the process still exists and is no zombie; a core file stays. */
bool target_alive(const struct target *target);
/* Whether it also still runs the program that it ran when it was opened. Of a process that has a
 * thread stopped by us, this stays so until that thread goes on or is gone. */
bool target_same_program(const struct target *target);

/* Why it could not be looked at or changed: -ESRCH, it has ended, is just being killed, or runs
 * another program now, or -ETIMEDOUT, one doesn't know. */
int target_why_not(const struct target *target);

/* Reads the mappings again. Caller holds lock. 0 or -errno as maps_read(). */
int target_refresh_maps(struct target *target);

/* Makes runtime.version exact where only the minor version could be told from outside (3.8
 * to 3.10) and the interpreter has come far enough to say it. Caller holds lock. */
void target_learn_version(struct target *target);

/* The start time of a process as in field 22 of /proc/PID/stat. */
int process_start_time(pid_t pid, uint64_t *out);
