/* One open directory: its names as they were at opendir, so that a listing read in pieces is one
 * listing. */
#pragma once

#include "fs/mount/node.h"

struct listing_name {
    char name[NAME_MAX + 1];
    uint64_t number; /* st_ino */
    mode_t mode;     /* only the type */
};

struct listing {
    struct listing_name *names;
    size_t n, alloc;
};

/* Lists a directory; context is that of place. A process for which `sees` says no is left out.
 * The caller owns *out. -ENOMEM, or what finding the names failed with. */
int listing_new(const struct place *place, struct file_context *context,
                bool (*sees)(void *arg, struct process *process), void *arg, struct listing **out);
void listing_free(struct listing *listing);
