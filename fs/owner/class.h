/* The rights that are needed to read a process: exactly the ids, groups and capabilities that it
 * has itself, in its own user namespace. A process of ours with these is to it what a program of
 * its own user is, so that the kernel checks each step (ptrace_may_access()). */
#pragma once

#include "fs/access/access.h"

#define CLASS_GROUPS_MAX 64 /* supplementary groups; of more only the first are taken on */

/* All bytes are defined, so that memcmp() compares two. */
struct owner_class {
    uint32_t own; /* the daemon's own rights, all of them; the rest but user is 0 then */
    uid_t user;   /* whose the processes are, by the daemon's numbers */
    /* the user namespace to be entered, as fstat() of /proc/PID/ns/user names it; 0: the daemon's.
     * The ids are that one's numbers */
    uint64_t ns_dev, ns_ino;
    uid_t uid;
    gid_t gid;
    uint64_t caps; /* permitted and effective */
    uint32_t ngroups;
    gid_t groups[CLASS_GROUPS_MAX];
    uint32_t nobody; /* no rights, those of a number that no user has: for what was recorded, and
                        statements, and core files. Where there is no such number they stay the
                        daemon's own; the rest but user and core is 0 then */
    uint32_t core;   /* of nobody's: the number of the core file that it reads, and 1; 0: none */
};

/* What class_decide() wants to know of a target beside access_read_target(). */
struct class_facts {
    const gid_t *groups;
    size_t ngroups;
    bool mapped; /* its ids have numbers in its own user namespace: */
    uid_t uid;
    gid_t gid;
};

/* The class of a target. Where its ids aren't all the same, or nobody but root may read it, these
 * are the daemon's own rights. */
void class_decide(const struct access *access, const struct access_target *target,
                  const struct class_facts *facts, struct owner_class *out);
/* class_decide() for process pid as things are. -ESRCH. */
int class_read(const struct access *access, pid_t pid, struct owner_class *out);
/* The number that an id of the daemon's has in a namespace, by its uid_map or gid_map as the daemon
 * reads it (user_namespaces(7)). False: it has none. */
bool class_map_id(const char *map, unsigned id, unsigned *out);
/* Takes it on, for good, in a process with one thread that has the daemon's rights. ns: a
 * descriptor of the namespace, where there is one. 0 or -errno. */
int class_become(const struct owner_class *class, int ns);
/* Whether the kernel lets this process read that one's memory: 0, -EACCES, -EPERM, -ESRCH. */
int class_try(pid_t pid);
