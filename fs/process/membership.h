/* What a process is in a distributed job, as its environment says: torchrun, Slurm, Open MPI, PMI
 * and Ray put it there, or the program does for torch.distributed.
 *
 * The environment of the start is what the kernel has. What Python has set since is in os.environ:
 * that is read from outside, for ranks that are started as one program and told apart later
 * (torch.multiprocessing.spawn, Ray). What torch.distributed itself has counts most. Names:
 * torch/distributed/elastic/agent/server, srun(1), mpirun(1), Hydra's pm/pmiserv. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define JOB_NAME_MAX 128 /* bytes, with a NUL */

struct target;

struct membership {
    int64_t rank;        /* in its job; -1: it has none */
    int64_t world;       /* ranks of the job, on all hosts; -1: not said, as in what follows */
    int64_t local_rank;  /* on this host ... */
    int64_t local_world; /* ... of so many */
    int64_t restarts;    /* of an elastic job so far */
    /* its rank is that of the process which forked it, or had multiprocessing start it */
    bool inherited;
    bool by_launcher;        /* the rank is what started it says, and not RANK */
    char job[JOB_NAME_MAX];  /* can be a file's name; "": not said */
    char launcher[16];       /* "torchrun"; "": not said */
    char role[JOB_NAME_MAX]; /* "dp=1,tp=0"; "": not said */
    char backend[32];        /* of torch.distributed: "gloo"; "": not said */
};

/* Reads a block of NAME=value, each ending with a NUL; what it doesn't say is -1 or "". */
void membership_parse(const char *block, size_t size, struct membership *out);

/* membership_parse() of the environment that a process was started with. */
void membership_of_start(pid_t pid, struct membership *out);
/* membership_parse() of a process's environment as it is now in its memory, where that can be
 * read. */
void membership_now(struct target *target, struct membership *out);
