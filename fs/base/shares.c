#include "fs/base/shares.h"

#include "fs/base/array.h"

#include <errno.h>
#include <stdbool.h>
#include <unistd.h>

void shares_deinit(struct shares *shares)
{
    free(shares->users);
    shares->users = NULL;
    shares->nusers = shares->alloc = 0;
}

/* The index of a user, or the one at which there would be one. */
static size_t find(const struct shares *shares, uid_t uid)
{
    size_t i = 0;

    while (i < shares->nusers && shares->users[i].uid != uid)
        i++;
    return i;
}

int shares_take_many(struct shares *shares, uid_t uid, size_t n)
{
    bool root = uid == 0 || uid == geteuid();
    size_t i = find(shares, uid), all = shares->all - (root ? 0 : shares->kept);
    bool known = i < shares->nusers;

    if (!n)
        return 0;
    if (!root && n > shares->each - (known ? shares->users[i].n : 0))
        return -EDQUOT;
    if (shares->n > all || n > all - shares->n)
        return -EAGAIN;
    if (!known) {
        if (ARRAY_GROW(shares->users, shares->alloc, i + 1) < 0)
            return -ENOMEM;
        shares->users[shares->nusers++] = (struct share){.uid = uid};
    }
    shares->users[i].n += n;
    shares->n += n;
    return 0;
}

void shares_give_many(struct shares *shares, uid_t uid, size_t n)
{
    if (!n)
        return;
    struct share *share = &shares->users[find(shares, uid)];
    shares->n -= n;
    share->n -= n;
    if (!share->n)
        *share = shares->users[--shares->nusers];
}

int shares_take(struct shares *shares, uid_t uid) { return shares_take_many(shares, uid, 1); }

void shares_give(struct shares *shares, uid_t uid) { shares_give_many(shares, uid, 1); }
