/* Memory that all users may hold together, up to a limit: each has a share of it, and some is kept
 * for root (shares.h). */
#pragma once

#include "agent/base/cleanup.h"
#include "fs/base/shares.h"

#include <pthread.h>
#include <stdbool.h>

struct budget {
    pthread_mutex_t lock;
    struct shares bytes;
};

static inline void budget_init(struct budget *budget, size_t all, size_t each, size_t kept)
{
    *budget = (struct budget){.bytes = {.all = all, .each = each, .kept = kept}};
    pthread_mutex_init(&budget->lock, NULL);
}

/* Ends a budget of which nothing is taken any more. */
static inline void budget_deinit(struct budget *budget)
{
    shares_deinit(&budget->bytes);
    pthread_mutex_destroy(&budget->lock);
}

/* Takes bytes out of it for a user, if there are that many left. */
static inline bool budget_take(struct budget *budget, uid_t uid, size_t bytes)
{
    _guard_mutex_(&budget->lock);
    return shares_take_many(&budget->bytes, uid, bytes) == 0;
}

static inline void budget_give(struct budget *budget, uid_t uid, size_t bytes)
{
    _guard_mutex_(&budget->lock);
    shares_give_many(&budget->bytes, uid, bytes);
}
