/* What a part of a profile, or parts of several, come to: what every file is rendered from. It is a
 * copy, nobody else changes it. Not thread-safe. */
#pragma once

#include "fs/profile/trie.h"

#include <sys/types.h>

/* No sum has more nodes, or cells, than this: what is deeper counts for what is outside of it. */
#define SUM_NODES_MAX (1u << 20)

enum profile_mode {
    MODE_CPU,
    MODE_GIL,
    MODE_NOGIL,
    MODE_OFF,
    MODE_WALL,
    MODE_FAULTS,
    MODE_ALLOC,
    MODE_HEAP,
    MODE_MODES,
};

/* "cpu"; NULL: there is no such mode. */
const char *profile_mode_name(enum profile_mode mode);
/* The mode of a name; MODE_MODES: there is none. */
enum profile_mode profile_mode_of(const char *name, size_t size);
/* What its weights are: "ns", "pages" or "bytes". */
const char *profile_mode_unit(enum profile_mode mode);

struct sum_thread {
    pid_t pid, tid; /* tid 0: threads that have no line of their own */
    char name[64];
};

/* The weight of the stack that ends at a node, in one thread. */
struct sum_cell {
    uint32_t thread, node;
    int64_t weight;
    int64_t before; /* of a difference: what weight is compared with, else 0 */
    uint64_t count; /* samples, of weight alone */
};

/* When something was sampled. */
struct sum_moment {
    uint64_t when; /* CLOCK_MONOTONIC ns */
    uint32_t thread, node;
    int64_t weight;
    uint64_t count;
};

struct sum {
    enum profile_mode mode;
    bool compares; /* it is a difference */
    struct trie trie;
    struct sum_thread *threads;
    size_t nthreads, threads_alloc;
    struct sum_cell *cells; /* each thread and node once */
    size_t ncells, cells_alloc;
    struct index by_cell;
    struct sum_moment *moments; /* where they were asked for, by time */
    size_t nmoments, moments_alloc;
    uint64_t from, to;  /* CLOCK_MONOTONIC ns: what it has; 0: nothing */
    uint64_t wall_zero; /* the realtime of CLOCK_MONOTONIC's 0, ns */
    uint64_t period;    /* ns between two samples, 0: unknown */
};

/* -ENOMEM. */
int sum_init(struct sum *sum, enum profile_mode mode);
void sum_deinit(struct sum *sum);
/* The number of a thread, new if needed. -ENOMEM. */
int sum_thread(struct sum *sum, const struct sum_thread *thread, uint32_t *out);
/* Adds to a cell. -ENOMEM. */
int sum_add(struct sum *sum, uint32_t thread, uint32_t node, int64_t weight, int64_t before,
            uint64_t count);

/* How one sum is put into another: below this frame, or NULL, and as what others are compared with,
 * times a factor, or as the one that is compared. */
struct sum_role {
    const struct profile_frame *root;
    bool before;
    bool functions; /* frames lose their lines: a function is one, wherever it is */
    double factor;  /* 0 is 1 */
};
/* -ENOMEM. */
int sum_merge(struct sum *into, const struct sum *from, const struct sum_role *role);

/* Makes a sum with functions for frames: without their lines. -ENOMEM; else the caller owns
 * *out. */
int sum_functions(const struct sum *sum, struct sum *out);

/* Weights of each node, over all threads or one (tid, 0: all): self[] and total[], which has those
 * below it, too; each of trie.nnodes. before: of `before` instead. -ENOMEM. */
int sum_weights(const struct sum *sum, pid_t tid, bool before, int64_t **self, int64_t **total);
