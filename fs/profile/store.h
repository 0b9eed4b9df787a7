/* The store of the samples of one process: one trie of stacks, and how often which thread was where
 * in slices of a second, which become slices of ten and of a minute as they get old. Pure: it knows
 * no process and no clock but the time that samples bring. Any thread may call anything here. */
#pragma once

#include "fs/profile/sum.h"

#include <stdatomic.h>

#define STORE_NODES_MAX 65536u
#define STORE_FRAMES_MAX 65536u
#define STORE_NAMES_MAX (8u << 20) /* bytes of functions' and files' names */
#define STORE_THREADS_MAX 1024u
#define STORE_BYTES_MAX (16u << 20)
#define STORE_BYTES_ALL (256u << 20)
#define STORE_DEPTH_MAX 1024u   /* deeper stacks end in [other] */
#define STORE_RECENT_MAX 65536u /* samples that are kept as such */
#define STORE_MARKS_MAX 64u
#define STORE_MARK_NAME_MAX 63u
/* ns: how long a slice is, and how old it is when it is merged into longer ones, or dropped. */
#define STORE_SLICE UINT64_C(1000000000)
#define STORE_SLICE_OLD (10 * STORE_SLICE)
#define STORE_SLICE_OLDEST (60 * STORE_SLICE)
#define STORE_OLD (600 * STORE_SLICE)
#define STORE_OLDEST (3600 * STORE_SLICE)
#define STORE_KEPT (24 * 3600 * STORE_SLICE)

/* Frames that every store has. */
enum { STORE_OTHER, STORE_TORN, STORE_NO_STACK };

enum sample_kind {
    SAMPLE_CPU,       /* weight: ns of processor time */
    SAMPLE_OFF,       /* ns off the processor; its innermost frame is a word, the reason */
    SAMPLE_PREEMPTED, /* ns ready to run, and not running; innermost frame [preempted] */
    SAMPLE_FAULT,     /* pages first touched */
    SAMPLE_ALLOC,     /* bytes allocated */
    SAMPLE_HEAP,      /* bytes that live: negative when freed */
    SAMPLE_KINDS,
};

/* The place where a store has a stack; zero at first. */
struct store_place {
    uint64_t epoch; /* of the store: whenever nodes get other numbers there is a new one */
    uint32_t node;
};

struct sample {
    uint64_t when; /* CLOCK_MONOTONIC ns */
    pid_t tid;
    enum sample_kind kind;
    bool gil;  /* it held it */
    bool torn; /* what is inside of frames is not known: `?? (torn)` is added */
    int64_t weight;
    uint64_t count;         /* samples that it stands for; 0 is 1 */
    const uint32_t *frames; /* of store_intern(), the outermost first */
    size_t n;               /* 0: no stack was found, it is kept as [no stack] */
    /* NULL, or kept by who brings this very stack (frames, torn) again and again: with it the
     * frames are not looked up another time. */
    struct store_place *place;
};

/* What all stores together have; one for the daemon, zero at first. */
struct store_budget {
    _Atomic size_t used;
};

struct store;

/* budget outlives it. -ENOMEM. */
int store_new(pid_t pid, struct store_budget *budget, struct store **out);
struct store *store_ref(struct store *store);
void store_unref(struct store *store);

/* Who has all that a store is told, where it is kept by another process. id: the next number each
 * time. Called with the store's lock. */
struct store_relay {
    void *arg;
    void (*frame)(void *arg, uint32_t id, const struct profile_frame *frame);
    void (*sample)(void *arg, const struct sample *sample);
    void (*lose)(void *arg, uint64_t n);
    void (*thread_name)(void *arg, pid_t tid, const char *name);
};
/* From now on it keeps no samples, and tells that one of them; to be called before there are any.
 * It outlives the store. */
void store_relay(struct store *store, const struct store_relay *relay);

/* The number of a frame with its line: the same for the same one, for ever. Where there are too
 * many it is STORE_OTHER's. -ENOMEM. */
int store_intern(struct store *store, const struct profile_frame *frame, uint32_t *id);
/* -ENOMEM: it counts as lost. -EINVAL: a frame that store_intern() never gave. */
int store_add(struct store *store, const struct sample *sample);
/* Samples that the source has lost, as far as it knows. */
void store_lose(struct store *store, uint64_t n);
void store_thread_name(struct store *store, pid_t tid, const char *name);
/* Whether it has one. */
bool store_thread_named(struct store *store, pid_t tid);
/* What ns a sample stands for where nothing else is known. */
void store_period(struct store *store, uint64_t period);

/* Remembers this moment by a name of at most STORE_MARK_NAME_MAX bytes; a name that is known
 * already is moved. -ENOSPC, -ENAMETOOLONG. */
int store_mark(struct store *store, const char *name, uint64_t when);
/* When that was. False: there is no such mark. */
bool store_marked(struct store *store, const char *name, uint64_t *when);
/* Calls each() with every mark, the first one first, until it returns something but 0: that. */
int store_marks(struct store *store, int (*each)(void *arg, const char *name, uint64_t when),
                void *arg);
/* Calls each() with every thread that has a line of its own, ascending. */
int store_threads(struct store *store, int (*each)(void *arg, pid_t tid, const char *name),
                  void *arg);
/* Forgets samples, marks and counts; frames stay. Samples that were taken before `now` and come
 * later are passed by (CLOCK_MONOTONIC ns). */
void store_clear(struct store *store, uint64_t now);

/* A part of what there is: the slices that begin in it. Times have the grain of slices: 1 s in the
 * last ten minutes, 10 s in the last hour, then a minute; a mark is exact. */
struct store_view {
    enum profile_mode mode;
    pid_t tid;         /* 0: all threads */
    uint64_t from, to; /* CLOCK_MONOTONIC ns; 0: from the first, to the last */
    bool moments;      /* when, too: of the single samples where they are kept, else of slices */
};
/* Adds it to a sum of the same mode. -ENOMEM. */
int store_sum(struct store *store, const struct store_view *view, struct sum *sum);

/* One kept sample. */
struct store_recent {
    uint64_t when;
    int64_t weight;
    uint32_t node;
    pid_t tid;
    enum sample_kind kind;
    bool gil;
};
/* The last samples, the oldest first, owned by the caller. -ENOMEM. */
int store_recent(struct store *store, struct store_recent **out, size_t *n);
/* Calls each() with every stack that kept samples end in: its number, the depth (0: innermost) and
 * the frame there, until it returns something but 0: that. Names are good until it returns. */
int store_stacks(struct store *store,
                 int (*each)(void *arg, uint32_t node, size_t depth, struct profile_frame frame),
                 void *arg);

struct store_stats {
    uint64_t samples, lost, torn, no_stack;
    uint64_t folded;         /* samples whose stack is cut by [other]: a limit was reached */
    uint64_t dropped_slices; /* for want of memory, before their time */
    size_t nodes, frames, threads, slices, bytes;
    uint64_t first, last; /* CLOCK_MONOTONIC ns of what is kept; 0: nothing */
};
void store_stats(struct store *store, struct store_stats *out);
