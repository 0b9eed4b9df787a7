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

/* Where the user is, or would be. */
static size_t find(const struct shares *shares, uid_t uid)
{
    size_t i = 0;

    while (i < shares->nusers && shares->users[i].uid != uid)
        i++;
    return i;
}

int shares_take(struct shares *shares, uid_t uid)
{
    bool root = uid == 0 || uid == geteuid();
    size_t i = find(shares, uid);
    bool known = i < shares->nusers;

    if (!root && known && shares->users[i].n >= shares->each)
        return -EDQUOT;
    if (shares->n >= shares->all - (root ? 0 : shares->kept))
        return -EAGAIN;
    if (!known) {
        if (ARRAY_GROW(shares->users, shares->alloc, i + 1) < 0)
            return -ENOMEM;
        shares->users[shares->nusers++] = (struct share){.uid = uid};
    }
    shares->users[i].n++;
    shares->n++;
    return 0;
}

void shares_give(struct shares *shares, uid_t uid)
{
    struct share *share = &shares->users[find(shares, uid)];

    shares->n--;
    if (--share->n == 0)
        *share = shares->users[--shares->nusers];
}
