/* Whether somebody who waits for an answer doesn't want it any more (Ctrl-C). */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

struct interrupt {
    atomic_bool raised;
    int fd; /* an eventfd, readable once raised; -1: can't be waited for */
};

/* NULL is never raised. */
static inline bool interrupted(const struct interrupt *interrupt)
{
    return interrupt && atomic_load(&interrupt->raised);
}
