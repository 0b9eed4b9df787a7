/* The plan for a request BREAKPOINTS: what it asks for, and the set that will follow. Planning
 * changes nothing; it only takes ids for new breakpoints.
 *
 * On Python's thread, with the GIL. */
#pragma once

#include "agent/breakpoint/places.h"
#include "agent/breakpoint/set.h"

/* One line of the request. */
struct entry {
    struct breakpoint *breakpoint; /* a reference */
    struct breakpoint *is;         /* its result: in the new set, or, borrowed, the one to remove */
    size_t at;                     /* where its line begins in the text */
    bool fresh;                    /* it is not in the present set */
    bool arms;                     /* it is to be armed: fresh, or switched on */
    bool adopts;                   /* it is, and lives as long as this line says from now on */
    const char *state;             /* of one that watches and is to be armed */
    char note[PROTO_WORDS_MAX];    /* the same */
};

/* A request while it is carried out. */
struct plan {
    struct breakpoint_set next;
    struct entry *entries;
    unsigned count;
    bool replace;
    uint64_t here; /* number of the open file that it was written to; 0: none */
    bool taken[PROTO_BREAKPOINTS_MAX + 1]; /* ids that lines say; by number, as far as that goes */
    struct breakpoint *arming[PROTO_BREAKPOINTS_MAX]; /* borrowed: to be armed, and at code */
    /* of those: of all interpreters, and of one */
    struct place_report reports[PROTO_BREAKPOINTS_MAX], in_one[PROTO_BREAKPOINTS_MAX];
    unsigned narming;
    int error;   /* of an interpreter */
    char *words; /* of DONE */
    size_t at;   /* what is to blame */
};

static inline bool plan_watches(const struct breakpoint *breakpoint)
{
    return breakpoint->kind == BREAKPOINT_WATCH || breakpoint->kind == BREAKPOINT_WATCH_ADDRESS ||
           breakpoint->kind == BREAKPOINT_NAN;
}

/* Whether a breakpoint of the present set stays where no line says otherwise: a set that is
 * replaced is not the one of other open files. */
bool plan_spares(const struct plan *plan, const struct breakpoint *breakpoint);
/* Has those of the present set be switched off as they were before the request, as they have to be
 * while it is armed (what it switches on is on, and what it switches off still is), or as they are
 * after it. */
enum plan_stage { PLAN_BEFORE, PLAN_ARMING, PLAN_DONE };
void plan_switch(enum plan_stage stage);
/* NULL is fine. */
void plan_free(struct plan **plan);
/* The steps of planning, in this order. Each returns 0, or -errno with words and with `at` where in
 * the text the line at fault begins. */
int plan_read(struct plan *plan, const char *text, size_t size);
int plan_make(struct plan *plan);
int plan_check(struct plan *plan, struct interpreter *interpreter);
