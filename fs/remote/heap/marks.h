/* Censuses of a process that are kept under a name, to be compared with later ones. They go with
 * their target, as when it executes another program. Thread-safe. */
#pragma once

#include "fs/remote/heap/census.h"

#include <time.h>

#define MARKS_MAX 16        /* of a process */
#define MARK_TYPES_MAX 4096 /* that are kept of a census, the largest; the others are one */
#define MARK_NAME_MAX 32    /* bytes of a name, with its end */
#define MARK_NOW "now"      /* no mark has this name */
#define MARK_OTHERS "(others)"

/* The limits for the marks of all processes: all users' together, one user's, and those that are
 * kept for root. */
#define MARKS_BYTES_MAX (64u << 20)
#define MARKS_BYTES_EACH (32u << 20)
#define MARKS_BYTES_KEPT (16u << 20)

struct mark {
    char name[MARK_NAME_MAX];
    struct timespec when; /* CLOCK_REALTIME */
    struct census census;
    /* the implementation's own */
    unsigned refs;
    uid_t uid;
    size_t bytes;
};

/* Whether it can be the name of a mark: letters, digits, - and _, and not MARK_NOW. */
bool mark_is_name(const char *name, size_t size);

/* Keeps a census, which is taken over also on failure; one of the same name is dropped. -EDQUOT:
 * MARKS_MAX are there, or too many bytes of this user's; -ENOMEM. */
int marks_add(struct target *target, const char *name, uid_t uid, struct census *census);
/* -ENOENT: there is none of that name. */
int marks_drop(struct target *target, const char *name);
/* A mark, with a reference; NULL: there is none. */
struct mark *marks_get(struct target *target, const char *name);
void mark_unref(struct mark *mark);
/* The names, in the order of time. How many. */
size_t marks_names(struct target *target, char names[MARKS_MAX][MARK_NAME_MAX]);

/* How one type differs. */
struct census_change {
    const char *name; /* belongs to one of both */
    int64_t count, bytes;
};
/* The types that differ between two, the one that grew most first. The caller owns the array, which
 * is good for as long as both. -ENOMEM. */
int census_compare(const struct census *from, const struct census *to, struct census_change **out,
                   size_t *n);
