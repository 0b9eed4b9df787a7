/* Whether a mount can work, found out before libfuse tries: each thing that can be wrong has its
 * own words and its remedy. */
#pragma once

#include "fs/mount/options.h"

struct mount_info {
    char type[64]; /* "fuse.probefs" */
    uid_t user;    /* user_id= of a FUSE mount, (uid_t)-1 if there is none */
};

/* The mount that is on top at path, of those in a file like /proc/PID/mounts. False: none is,
 * or there is no such file. */
bool mount_info_find(const char *mounts, const char *path, struct mount_info *out);

/* Checks options->mountpoint and what mounting needs, and makes the path absolute. A probefs
 * mount there whose daemon has died is removed. On failure -errno, and `why` says what is wrong
 * and what to do; it may say something on success too. */
int mountpoint_prepare(struct options *options, struct text *why);

/* Whether /dev/fuse can be opened: 0, or -errno, and `why` says what to do. */
int mountpoint_check_device(struct text *why);
/* Whether there is the program by which an ordinary user mounts: 0, or -ENOENT, and `why` as above.
 */
int mountpoint_check_helper(struct text *why);
