/* Things that all users have a limited number of together: none of them can take all, and some are
 * kept for root, and for who runs the daemon. Not thread-safe. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

struct shares {
    size_t all;  /* at once */
    size_t each; /* of one user */
    size_t kept; /* of all, that only root can have; root's own number has no limit but `all` */
    size_t n;
    struct share {
        uid_t uid;
        size_t n;
    } * users; /* those that have some */
    size_t nusers, alloc;
};

/* Ends shares of which nothing is taken any more. */
void shares_deinit(struct shares *shares);

/* Takes one for a user. -EAGAIN: there are no more; -EDQUOT: not for this user; -ENOMEM. */
int shares_take(struct shares *shares, uid_t uid);
void shares_give(struct shares *shares, uid_t uid);
/* shares_take() of `n` at once, which may be none. */
int shares_take_many(struct shares *shares, uid_t uid, size_t n);
void shares_give_many(struct shares *shares, uid_t uid, size_t n);
