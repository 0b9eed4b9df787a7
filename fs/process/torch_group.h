/* The process group that torch.distributed.init_process_group() has made: what a process is in its
 * job, whether or not its environment says so. */
#pragma once

#include <stdint.h>

struct target;

struct torch_group {
    int64_t rank, world;
    char backend[32]; /* "gloo" */
    char origin[128]; /* what it was made by: "env://", "tcp://10.0.0.1:29500"; "": not said */
};

/* Read from outside. -ENOENT: there is none, or PyTorch isn't there, or its group isn't laid out as
 * known; -EOPNOTSUPP; errors of imports_read_one(). The process may hang (proc/may_hang.h). */
int torch_group_read(struct target *target, struct torch_group *out);
