/* How long a thread, or a task, has stood where it stands. */
#pragma once

#include "fs/base/text.h"

#include <stdbool.h>
#include <stdint.h>

#define STANDING_SAID_NS 1000000000u /* less than that isn't said */

enum standing_kind {
    STANDS_NOT,    /* it moves, or that isn't known */
    STANDS,        /* certain: it has not run */
    SEEN_LINE,     /* it runs, and whenever it was looked at it was at this line of this frame */
    SEEN_FUNCTION, /* ... or at another line of this frame */
    SEEN_AWAITING, /* a task: whenever it was looked at it awaited this */
};

struct standing {
    enum standing_kind kind;
    uint64_t ns;   /* never more than it is */
    bool at_least; /* it may be far more: it stood there when it was first looked at */
};

/* Whether it is long enough to be told. */
static inline bool standing_said(const struct standing *s)
{
    return s->kind != STANDS_NOT && s->ns >= STANDING_SAID_NS;
}

/* Adds it, where it is known: "for 34.2 s", "for at least 34.2 s", "seen on this line for 34.2 s",
 * "seen in this function for 34.2 s", "seen here for 34.2 s". */
void standing_add(const struct standing *standing, struct text *out);
