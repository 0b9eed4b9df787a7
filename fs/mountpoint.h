/* Whether a mount can work, found out before libfuse tries: each thing that can be wrong has its
 * own words and its remedy. */
#pragma once

#include "fs/options.h"

/* One line of /proc/PID/mountinfo. */
struct mount_info {
    char type[64];   /* "fuse.probefs" */
    char source[128];
    uid_t user;      /* user_id= of a FUSE mount, (uid_t)-1 if there is none */
};

/* The mount that is on top at path, from the text of a mountinfo file. False: none is. */
bool mount_info_find(const char *mountinfo, const char *path, struct mount_info *out);
/* Whether the text of /etc/fuse.conf has the line user_allow_other. */
bool fuse_conf_allows_other(const char *conf);

/* Checks options->mountpoint and what mounting needs, and makes the path absolute. A probefs
 * mount there whose daemon has died is removed. On failure -errno, and `why` says what is wrong
 * and what to do; it may say something on success too. */
int mountpoint_prepare(struct options *options, struct text *why);
