/* Which breakpoints there are, and their rows.
 *
 * The set is changed by Python's thread only, and looked at by it without the lock. */
#pragma once

#include "agent/breakpoint.h"

struct breakpoint_set {
    struct breakpoint *all[PROTO_BREAKPOINTS_MAX]; /* references, by rising id */
    unsigned count;
};

/* The one that there is. */
const struct breakpoint_set *breakpoint_set(void);
/* Another one takes its place, with all references of `next`, which is empty afterwards. The references of the one before are
 * given up; whoever is not in the new one is marked as removed, and its row says so. */
void breakpoint_set_replace(struct breakpoint_set *next);
/* Whether there would be room for all their rows. */
bool breakpoint_set_fits(const struct breakpoint_set *set);
/* The place of an id, or where it would be. */
unsigned breakpoint_set_find(const struct breakpoint_set *set, uint32_t id);
/* Takes over a reference. It has an id, and there is none with it. */
void breakpoint_set_insert(struct breakpoint_set *set, struct breakpoint *breakpoint);
/* Hands back its reference. */
struct breakpoint *breakpoint_set_take(struct breakpoint_set *set, unsigned at);
void breakpoint_set_clear(struct breakpoint_set *set);
