/* One breakpoint or watchpoint of the set (change.h).
 *
 * All interpreters share it. Each interpreter keeps its own Python objects for it: compiled
 * expressions and code objects (expression.h, places.h). A thread holds a reference while it is
 * inside a hit, so that the breakpoint may be removed meanwhile. */
#pragma once

#include "agent/record/ring.h"
#include "agent/wire/proto.h"

#include <stdbool.h>
#include <stdint.h>

struct breakpoint {
    unsigned refs; /* atomically */
    uint32_t id;
    /* number of the open file that it lives as long as; 0: it stays. Changed under the lock of the
     * set */
    uint64_t here;
    enum breakpoint_kind kind;
    enum breakpoint_action action;
    enum watch_route route;
    uint32_t line;
    uint64_t address;
    uint32_t length;
    /* of WATCH: the frame in which names are looked up; thread 0: none */
    uint64_t thread; /* PyThreadState_GetID(); not yet looked up: its pthread_t */
    uint32_t depth;
    const void *frame; /* of the last time: an address and no more */
    bool same_frame;   /* armed again, it is to be that one */
    uint64_t count;    /* 0: hits for ever */
    uint64_t stop_ns;  /* never 0 */
    bool all;          /* of STOP: the other threads are paused, too */
    double set_at;     /* [s] since 1970 */
    uint32_t lineno;   /* of LINE: where it is armed; 0: nowhere */
    char *text; /* as it is written, without `here` and `disabled`; what follows points into the
                   same memory. All NUL-terminated */
    const char *location; /* the part of text that says where; not NUL-terminated */
    size_t location_size;
    const char *where;
    const char *condition; /* NULL: none */
    uint32_t ncaptures;
    const char *within;    /* of RAISE: a path, or own; "": any */
    bool leaving;          /* of RAISE: seen as it leaves that, and not as it gets there */
    uint64_t after, every; /* as struct proto_breakpoint has them */
    const char *captures;  /* one after the other */

    /* changed by any thread, atomically */
    uint64_t hits, dropped, errors;
    uint64_t passed; /* how often its condition held */
    /* code objects or pieces of memory in which it is armed, in all interpreters */
    uint32_t places;
    bool removed;  /* no longer in the set, or released (set.h): nothing hits any more */
    bool done;     /* `count` is reached, or its frame has returned */
    bool disabled; /* in the set, but nothing of it is armed, and it hits nothing */
    struct {       /* of a request that is planned, or carried out: plan.h */
        bool before, disabled; /* what `disabled` was, and will be */
        bool arms;             /* it is listed as one to arm */
    } planned;
    uint64_t rows; /* how many may be written just now, and since when: hit.c */

    /* its row, under the lock of the set */
    struct ring_ticket ticket;
    const char *state;          /* one of breakpoints.sql's */
    double changed;             /* [s] since 1970; no other row of the ring has it */
    char note[PROTO_WORDS_MAX]; /* "": none */
    char raised[200];           /* what its condition raised first; "": nothing yet */
};

/* Reads one change of the set from `left` bytes of the daemon's; here: the number of the open file
 * that they were written to, 0: none; *size: how many bytes the change takes. Of a
 * kind that sets nothing only id and where are used. 0; -EINVAL: the bytes are not as wire/proto.h
 * says, *why says what is wrong; -ENOMEM. */
int breakpoint_read(const char *data, size_t left, uint64_t here, struct breakpoint **out,
                    size_t *size, const char **why);
struct breakpoint *breakpoint_ref(struct breakpoint *breakpoint);
/* NULL is fine. Any thread. */
void breakpoint_unref(struct breakpoint *breakpoint);

static inline bool breakpoint_is_removed(const struct breakpoint *breakpoint)
{
    return __atomic_load_n(&breakpoint->removed, __ATOMIC_RELAXED);
}
static inline bool breakpoint_is_disabled(const struct breakpoint *breakpoint)
{
    return __atomic_load_n(&breakpoint->disabled, __ATOMIC_RELAXED);
}
/* Whether a breakpoint can't be hit any more, or as long as it is switched off. */
static inline bool breakpoint_is_over(const struct breakpoint *breakpoint)
{
    return breakpoint_is_removed(breakpoint) || breakpoint_is_disabled(breakpoint) ||
           __atomic_load_n(&breakpoint->done, __ATOMIC_RELAXED);
}
/* Whether what a request says is of a kind that sets nothing, but is about one of the set. */
static inline bool breakpoint_is_change(enum breakpoint_kind kind)
{
    return kind == BREAKPOINT_REMOVE || kind == BREAKPOINT_DISABLE || kind == BREAKPOINT_ENABLE;
}
/* Whether a breakpoint is at a location, which is given in the words in which it is printed. */
bool breakpoint_is_at(const struct breakpoint *breakpoint, const char *location);
