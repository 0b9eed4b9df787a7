/* The source of the samples of a process: of several sources the first that may be used here. */
#pragma once

#include "fs/base/interrupt.h"
#include "fs/base/text.h"
#include "fs/sampler/bpf/kernel_watch.h"
#include "fs/sampler/tasks.h"
#include "fs/sampler/trap_watch.h"

#define SAMPLER_HZ_MIN 1
#define SAMPLER_HZ_MAX 10000
#define SAMPLER_HZ_USUAL 97

#define SAMPLER_MODE(mode) (1u << (mode))
/* The modes that need to know what happens off the processor. */
#define SAMPLER_OFF_MODES (SAMPLER_MODE(MODE_OFF) | SAMPLER_MODE(MODE_WALL))
#define SAMPLER_ON_MODES                                                       \
 (SAMPLER_MODE(MODE_CPU) | SAMPLER_MODE(MODE_GIL) | SAMPLER_MODE(MODE_NOGIL) | \
  SAMPLER_MODE(MODE_WALL))

struct sampler_options {
    unsigned modes;          /* SAMPLER_MODE() of each */
    enum profile_mode shown; /* the first of them: what files show that name none */
    unsigned hz;
    bool native;   /* native frames too */
    bool children; /* processes that it starts, too */
    bool inside;   /* by the agent in the process, and nobody else */
    pid_t tid;     /* only this thread; 0: all */
};

/* What a source says of itself. */
struct sampler_figures {
    uint64_t target_ns; /* what sampling has cost the process so far, of its processor time */
    uint64_t daemon_ns; /* what it has cost the daemon */
    bool native;        /* it has native frames */
    unsigned missing;   /* modes that were asked for, and that it can't */
    char note[128];     /* in words, what else is to be known; "": nothing */
};

struct sampler;

/* A way to come by samples. */
struct sampler_source {
    const char *name; /* "bpf" */
    unsigned modes;   /* that it can */
    /* Begins. -errno: it can't be used here, why says it in words, and the next one is tried. */
    int (*start)(struct sampler *sampler, struct text *why);
    /* Ends, soon; frees what start made. Once, and never while tick() runs. */
    void (*stop)(struct sampler *sampler);
    /* NULL, or called on a thread of the sampler's own: does what is due and returns when it wants
     * to be called again (CLOCK_MONOTONIC, ns). UINT64_MAX: the process is gone. It may wait
     * itself, for `wakes` too, and no longer than `until`. */
    uint64_t (*tick)(struct sampler *sampler, uint64_t now);
    /* NULL, or takes in what is pending, before the store is read. */
    void (*collect)(struct sampler *sampler);
    void (*figures)(struct sampler *sampler, struct sampler_figures *out);
};

/* A program in the kernel takes them: bpf/. */
extern const struct sampler_source sampler_bpf;
/* The agent takes them, where one is in: inside.c. */
extern const struct sampler_source sampler_inside;
/* Wakes up and reads from outside: timer.c. */
extern const struct sampler_source sampler_timer;
/* Reads what the agent samples of allocations: allocations.c. */
extern const struct sampler_source sampler_allocations;
/* The sources, in order of preference; ends with NULL. */
extern const struct sampler_source *const sampler_sources[];

/* Who is asked, where another process has the rights that a source takes. Any thread may; a told
 * error says that it can't be asked any more, too. */
struct sampler_door {
    void *arg;
    void (*ask_kernel)(void *arg, const struct kernel_ask *ask, struct kernel_told *told);
    void (*ask_traps)(void *arg, const struct trap_ask *ask, struct trap_told *told);
};

/* A sampler that runs, or ran. What follows `of` is for its source. */
struct sampler {
    struct target *target; /* a reference */
    struct store *store;   /* a reference */
    struct sampler_names *names;
    struct sampler_tasks *tasks;
    struct sampler_options options;
    const struct sampler_source *source;
    const struct sampler_source *by;   /* who is asked: that, or target->sampled_by in its place */
    const struct sampler_door *door;   /* NULL, or who is asked for root's rights */
    _Atomic unsigned others;           /* samplers in other processes that look by a timer, too */
    void *of;                          /* the source's own */
    uint64_t since;                    /* CLOCK_MONOTONIC, ns */
    uint64_t until;                    /* the same: when it ends by itself; 0: it doesn't */
    int wakes;                         /* readable: a tick() that waits is to return */
    struct text why;                   /* why no better source is used, one a line */
    const struct interrupt *interrupt; /* of who starts it; NULL once it has begun */

    /* the sampler's own */
    _Atomic unsigned references;
    _Atomic uint64_t hurried; /* CLOCK_MONOTONIC, ns: when somebody watched it last; 0: nobody */
    pthread_mutex_t lock;     /* guards what follows */
    pthread_cond_t changed;
    bool threaded; /* a thread of its own ticks, and ends the source */
    bool stopping, over;
    struct sampler_figures last;
    pthread_mutex_t using; /* held while the source is asked, or ended; guards what follows */
    bool stopped;          /* source->stop() was called */
};

/* What its options ask of the program in the kernel. */
struct kernel_wish sampler_wish(const struct sampler *sampler);
/* Starts one. duration: for so long, from when its source has begun; ns, 0: until it is stopped.
 * -EOPNOTSUPP: no source can do any of it here; -ESRCH, -ENOMEM, -EINTR: why says it in words. */
int sampler_start(struct target *target, struct store *store, const struct sampler_options *options,
                  uint64_t duration, const struct interrupt *interrupt, struct text *why,
                  struct sampler **out);
/* sampler_start() of one source, here, in a process that has no more than the target's rights. */
int sampler_start_here(struct target *target, struct store *store,
                       const struct sampler_options *options, const struct sampler_source *source,
                       const struct sampler_door *door, struct text *why, struct sampler **out);
struct sampler *sampler_ref(struct sampler *sampler);
void sampler_unref(struct sampler *sampler); /* NULL is fine */
/* Ends it. What is pending is taken in, and *last is what it came to; where that takes longer than
 * a moment (a file system that doesn't answer) it is done later, and *last as it was known before:
 * false. */
bool sampler_stop(struct sampler *sampler, struct sampler_figures *last);
/* Whether it has ended by itself: its time was over, or the process has gone. */
bool sampler_over(struct sampler *sampler);
/* Takes in what is pending; as whatever reads a process, it may hang. */
void sampler_collect(struct sampler *sampler);
/* Somebody watches it as it goes on: for some seconds it takes in soon what is pending, by itself.
 * Never waits. */
void sampler_hurry(struct sampler *sampler);
/* Whether it is to. */
bool sampler_hurries(const struct sampler *sampler, uint64_t now);
/* Never waits: while it is busy they are as they were before. */
void sampler_figures(struct sampler *sampler, struct sampler_figures *out);
