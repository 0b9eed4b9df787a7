/* Things that all users have a limited number of together: none of them can take all, and some are
 * kept for root, and for who runs the daemon. Not thread-safe. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

struct shares {
    unsigned all;  /* at once */
    unsigned each; /* of one user */
    unsigned kept; /* of all, that only root can have; root's own number has no limit but `all` */
    unsigned n;
    struct share {
        uid_t uid;
        unsigned n;
    } * users; /* those that have some */
    size_t nusers, alloc;
};

/* Nothing may be taken then. */
void shares_deinit(struct shares *shares);

/* Takes one for a user. -EAGAIN: there are no more; -EDQUOT: not for this user; -ENOMEM. */
int shares_take(struct shares *shares, uid_t uid);
void shares_give(struct shares *shares, uid_t uid);
