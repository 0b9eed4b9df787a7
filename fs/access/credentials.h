/* Who asks, taken down once and kept: as the kernel keeps the credentials of who opened a file with
 * that file (file->f_cred), whatever becomes of the process.
 *
 * A descriptor travels: programs inherit it that can do more (su), it lies in a socket, it is
 * handed to somebody's daemon. So what comes by it is done in the names of several: who opened it,
 * whoever wrote what waits there, and who acts now. Each of them must be allowed to. A pid among
 * the credentials is never used to find out what its process may now, since that may be another
 * program, or another process. */
#pragma once

#include "agent/base/cleanup.h"
#include "fs/access/access.h"

#include <stdatomic.h>

#define CREDENTIALS_CAPS 5          /* CapInh, CapPrm, CapEff, CapBnd, CapAmb */
#define CREDENTIALS_GROUPS_MAX 1024 /* who has more is told from everybody else */

/* All that the kernel keeps in a struct cred and decides by. Not changed once it is made. */
struct credentials {
    atomic_uint refs;
    struct access_caller who; /* complete, and no longer `lives` */
    uint64_t start_stack;     /* of its process: new with each exec; 0: not known */
    bool known;               /* what follows was read, and all of it */
    unsigned uid[4], gid[4];  /* real, effective, saved, filesystem */
    uint64_t caps[CREDENTIALS_CAPS];
    int ns; /* keeps who.ns: its number can't become another's meanwhile; -1: the daemon's own */
    size_t ngroups;
    gid_t groups[];
};

/* Takes them from the thread that asks, which waits for the answer. One of which nothing can be
 * seen, or whose calls are made with other credentials than its own, may do nothing. One reference
 * in *out. -ENOMEM. */
int credentials_new(const struct access *access, const struct caller *from,
                    struct credentials **out);
struct credentials *credentials_ref(struct credentials *credentials);
void credentials_unref(struct credentials *credentials);
static inline void cleanup_credentials(struct credentials **credentials)
{
    credentials_unref(*credentials);
}
#define _cleanup_credentials_ _cleanup_(cleanup_credentials)

/* Whether they were taken from threads of one process, which has executed nothing in between. */
bool credentials_same_program(const struct credentials *a, const struct credentials *b);
/* Whether they are the same, all of them. What isn't known is like nothing but itself. */
bool credentials_same(const struct credentials *a, const struct credentials *b);

#define PRINCIPALS_MAX 8 /* in whose name one thing is done: more of them are a game */

/* The users in whose name something is done. What one of them may not do isn't done. */
struct principals {
    struct credentials *opener; /* of the file, or who asks; the reference is another's */
    struct access_caller items[PRINCIPALS_MAX];
    size_t n;
};

/* Begins with the one who asks, and waits for the answer. */
void principals_init(struct principals *principals, struct credentials *only);
/* -EPERM: there are PRINCIPALS_MAX already. lives: it waits for the answer. */
int principals_add(struct principals *principals, const struct credentials *credentials,
                   bool lives);
/* Whether all of them may look at process pid: as access_look(). */
int principals_look(const struct access *access, struct principals *principals, pid_t pid);

/* The users in whose name something is read, to be asked by what knows nothing of access. A copy
 * for each thread. */
struct looker {
    const struct access *access;
    struct principals principals;
};
/* Whether all of a looker may look at a process. */
bool looker_may_look(void *looker, pid_t pid);
