/* Memory that many may hold together, up to a limit. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct budget {
    atomic_size_t used; /* bytes */
    size_t max;
};

/* Takes bytes out of it, if there are that many left. */
static inline bool budget_take(struct budget *budget, size_t bytes)
{
    size_t used = atomic_load(&budget->used);
    do {
        if (bytes > budget->max - used)
            return false;
    } while (!atomic_compare_exchange_weak(&budget->used, &used, used + bytes));
    return true;
}

static inline void budget_give(struct budget *budget, size_t bytes)
{
    atomic_fetch_sub(&budget->used, bytes);
}
