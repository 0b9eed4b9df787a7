/* Names of the tree that are found at run time: numbers of processes, threads, frames, ranks. */
#pragma once

#include "fs/tree/file.h"

/* One of them; all are decimal. */
struct number {
    unsigned value;
    struct process *process; /* where the name is that of a process: a reference, else NULL */
};

struct numbers {
    struct number *items;
    size_t n, alloc;
};

/* -ENOMEM. Takes over the reference to process, also on failure. */
int numbers_add(struct numbers *numbers, unsigned value, struct process *process);
void numbers_deinit(struct numbers *numbers);

/* What the number in a dynamic name is. */
enum number_kind { NUMBER_PID, NUMBER_TID, NUMBER_DEPTH, NUMBER_RANK };

/* How the names of one dynamic entry come about. context is that of the directory. */
struct naming {
    enum number_kind kind;
    /* All that exist now, ascending. 0 or -errno. */
    int (*list)(struct file_context *context, struct numbers *out);
    /* Whether there is `value`: 0 or -ENOENT. Where the name stands for a process it is put into
     * context, with a reference. */
    int (*find)(struct file_context *context, unsigned value);
};
