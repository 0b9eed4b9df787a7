/* The rights that are needed to read a process: exactly the ids, groups and capabilities that it
 * has itself. A process of ours with these is to it what a program of its own user is, so that the
 * kernel checks each step (ptrace_may_access()). */
#pragma once

#include "fs/access/access.h"

#define OWNER_GROUPS_MAX 64 /* supplementary groups; of more only the first are taken on */

/* All bytes are defined, so that memcmp() compares two. */
struct owner_class {
    uint32_t own; /* the daemon's own rights, all of them; the rest is 0 then */
    uid_t uid;
    gid_t gid;
    uint32_t ngroups;
    uint64_t caps; /* permitted and effective */
    gid_t groups[OWNER_GROUPS_MAX];
};

/* The class of a target. Where its ids aren't all the same, or it is in a user namespace that root
 * made, these are the daemon's own. */
void class_decide(const struct access *access, const struct access_target *target,
                  const gid_t *groups, size_t ngroups, struct owner_class *out);
/* class_decide() for process pid as things are. -ESRCH. */
int class_read(const struct access *access, pid_t pid, struct owner_class *out);
/* Takes it on, for good, in a process with one thread that has the daemon's. 0 or -errno. */
int class_become(const struct owner_class *class);
