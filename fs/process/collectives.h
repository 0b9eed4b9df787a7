/* Which collective of torch.distributed a process is in: by its stacks, the variables in them and
 * what the module knows of its groups, all read from outside; and, where the agent has recorded
 * that, by the numbers that PyTorch itself gives to the collectives of a group.
 *
 * What isn't known stays empty. */
#pragma once

#include "fs/process/torch_group.h"
#include "fs/remote/moment/standing.h"

#include <sys/types.h>

struct recording;
struct target;
struct text;

#define COLLECTIVES_MAX 8 /* of one process that are told */

enum collective_kind {
    COLLECTIVE_STACK,  /* a thread is in that function of torch.distributed */
    COLLECTIVE_NATIVE, /* a thread is in it, as only its native frames say */
    COLLECTIVE_NONE,   /* the main thread is in none, but somewhere else */
};

struct collective {
    enum collective_kind kind;
    pid_t tid;
    char op[96];    /* "all_reduce"; of COLLECTIVE_NONE the library's function; "": its own code */
    char group[64]; /* the name of its group; "": unknown */
    int64_t seq;    /* its number in that; -1: unknown */
    double start;   /* [s] since 1970, as recorded; NaN: unknown */
    char shape[96]; /* "64, 32", if it has a tensor */
    bool has_shape;
    char dtype[24];           /* "float32"; "": unknown */
    int64_t peer;             /* of send and recv, among all; -1: none */
    char func[96], file[256]; /* the program's frame that has called it, or that it is in */
    int line;                 /* -1: unknown; func "": there is none */
    char variables[192];      /* of that, small plain ones, a line each: "step=100" */
    char wait[80];            /* in what the thread waits, "futex"; "": in nothing known */
    struct standing standing; /* for how long it has stood there */
};

/* What PyTorch has counted in a group, as the agent saw it last. */
struct collective_count {
    int64_t seq;    /* of the last one that has begun; -1: unknown */
    double since;   /* [s] since 1970, since when it hasn't moved; NaN: unknown */
    int64_t called; /* the highest one whose call was recorded, by any thread; -1: none */
};

struct collectives {
    struct torch_groups groups;
    struct collective_count counts[TORCH_GROUPS_MAX]; /* of each of them */
    struct collective items[COLLECTIVES_MAX];
    size_t n;
};

/* recording: the process's. -ENOENT: torch.distributed has no
 * group there, nor is one being made. Other errors as snapshot_take(), and why says more. The
 * process may hang (proc/may_hang.h). */
int collectives_read(struct target *target, struct recording *recording, struct text *why,
                     struct collectives *out);

/* Makes of bytes that somebody else says a struct collectives: texts end, and drive no terminal.
 * False: its numbers can be none. */
bool collectives_make_sane(void *bytes);
