/* One breakpoint or watchpoint of the set (breakpoints.h).
 *
 * It is shared by all interpreters: what is Python's of it (compiled expressions, code objects) each of them keeps for
 * itself (places.h, expression.h). A thread that is in the midst of a hit holds a reference, so it may be removed
 * meanwhile. */
#pragma once

#include "agent/proto.h"
#include "agent/ring.h"

#include <stdbool.h>
#include <stdint.h>

struct breakpoint {
    unsigned refs;            /* atomically */
    uint32_t id;
    enum breakpoint_kind kind;
    enum breakpoint_action action;
    enum watch_route route;
    uint32_t line;
    uint64_t address;
    uint32_t length;
    uint64_t count;           /* 0: hits for ever */
    uint64_t stop_ns;         /* never 0 */
    double set_at;            /* [s] since 1970 */
    char *text;               /* as it is written; what follows points into the same memory. All NUL-terminated */
    const char *location;     /* the part of text that says where; not NUL-terminated */
    size_t location_size;
    const char *where;
    const char *condition;    /* NULL: none */
    uint32_t ncaptures;
    const char *captures;     /* one after the other */

    /* changed by any thread, atomically */
    uint64_t hits, dropped, errors;
    uint32_t places;          /* code objects or pieces of memory in which it is armed, in all interpreters */
    bool removed;             /* no longer in the set: nothing hits any more */
    bool done;                /* `count` is reached */
    uint64_t rows;            /* how many may be written just now, and since when: hit.c */

    /* its row, under the lock of the set */
    struct ring_ticket ticket;
    const char *state;        /* one of breakpoints.sql's */
    char note[PROTO_WORDS_MAX]; /* "": none */
};

/* Reads one change from `left` bytes that somebody sent; *size: how many of them it is. Of BREAKPOINT_REMOVE only id and
 * where are of use. 0; -EINVAL: it is not as proto.h says, *why says how; -ENOMEM. */
int breakpoint_read(const char *data, size_t left, struct breakpoint **out, size_t *size, const char **why);
struct breakpoint *breakpoint_ref(struct breakpoint *breakpoint);
/* NULL is fine. Any thread. */
void breakpoint_unref(struct breakpoint *breakpoint);

/* Nothing hits it any more. */
static inline bool breakpoint_is_over(const struct breakpoint *breakpoint)
{
    return __atomic_load_n(&breakpoint->removed, __ATOMIC_RELAXED) || __atomic_load_n(&breakpoint->done, __ATOMIC_RELAXED);
}
/* Whether a location, in the words in which it is printed, is this one's. */
bool breakpoint_is_at(const struct breakpoint *breakpoint, const char *location);
