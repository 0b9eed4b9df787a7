/* An open directory: its names as they were at opendir, so that a listing read in pieces is one
 * listing. */
#pragma once

#include "fs/mount/node.h"
#include "fs/owner/serve.h"

struct listing_name {
    char name[NAME_MAX + 1];
    uint64_t number; /* st_ino */
    mode_t mode;     /* only the type */
};

struct listing {
    struct listing_name *names;
    size_t n, alloc;
};

/* The listing of a directory whose names are answered. A process for which `sees` says no is left
 * out. The caller owns *out. -ENOMEM. */
int listing_new(const struct place *place, const struct owner_answer *answer,
                bool (*sees)(void *arg, struct process *process), void *arg, struct listing **out);
void listing_free(struct listing *listing);
