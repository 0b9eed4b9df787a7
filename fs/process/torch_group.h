/* The process group that torch.distributed.init_process_group() has made: what a process is in its
 * job, whether or not its environment says so. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct target;

#define TORCH_GROUPS_MAX 64 /* of one process that are told */

struct torch_group {
    int64_t rank, world;
    char backend[32]; /* "gloo" */
    char origin[128]; /* what it was made by: "env://", "tcp://10.0.0.1:29500"; "": not said */
};

/* Read from outside. -ENOENT: there is none, or PyTorch isn't there, or its group isn't laid out as
 * known; -EOPNOTSUPP; errors of imports_read_one(). The process may hang (proc/may_hang.h). */
int torch_group_read(struct target *target, struct torch_group *out);

/* One of the groups that this process is in. */
struct torch_its_group {
    uint64_t object;  /* a ProcessGroup of Python's */
    char name[64];    /* as PyTorch names it; "": unknown */
    char backend[32]; /* "": unknown */
    int64_t size;     /* processes; -1: unknown */
    int64_t rank;     /* of this one in it; -1: unknown */
    int64_t timeout;  /* ms that its collectives wait at most, where asked for; -1: unknown */
};

struct torch_groups {
    struct torch_its_group items[TORCH_GROUPS_MAX]; /* the default group is the first */
    size_t n;
    bool cut; /* there are more */
};

/* torch_group_read() of all groups: -ENOENT only where there is none at all. */
int torch_groups_read(struct target *target, struct torch_groups *out);
/* The same with their timeouts, which takes longer. */
int torch_timeouts_read(struct target *target, struct torch_groups *out);
