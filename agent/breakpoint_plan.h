/* A BREAKPOINTS while it is carried out: what it asks for, and what the set is to be then. Changes nothing but for ids of
 * breakpoints that are new.
 *
 * Python's thread, with the GIL. */
#pragma once

#include "agent/breakpoint_set.h"
#include "agent/places.h"

/* What is asked for. */
struct entry {
    struct breakpoint *breakpoint; /* a reference */
    struct breakpoint *is;    /* what it came to: in the new set, or, borrowed, what is removed */
    size_t at;                /* where in the text it begins */
    bool fresh;               /* it was not there before */
    const char *state;        /* of a fresh one that watches */
    char note[PROTO_WORDS_MAX]; /* the same */
};

/* A request while it is carried out. */
struct plan {
    struct breakpoint_set next;
    struct entry *entries;
    unsigned count;
    bool replace;
    bool taken[PROTO_BREAKPOINTS_MAX + 1]; /* ids that lines say; by number, as far as that goes */
    struct breakpoint *fresh[PROTO_BREAKPOINTS_MAX]; /* borrowed: those that are at code */
    struct place_report reports[PROTO_BREAKPOINTS_MAX], here[PROTO_BREAKPOINTS_MAX]; /* of fresh ones: of all
                                                                    interpreters, and of one */
    unsigned nfresh;
    int error;                /* of an interpreter */
    char *words;              /* of DONE */
    size_t at;                /* what is to blame */
};

static inline bool plan_watches(const struct breakpoint *breakpoint)
{
    return breakpoint->kind == BREAKPOINT_WATCH || breakpoint->kind == BREAKPOINT_WATCH_ADDRESS;
}

/* NULL is fine. */
void plan_free(struct plan **plan);
/* Each of these: 0, or -errno with words, and `at` where in the text the one begins that is to blame. In this order: */
int plan_read(struct plan *plan, const char *text, size_t size);
int plan_make(struct plan *plan);
int plan_check(struct plan *plan);
