/* Sampled allocations by site, as the agent keeps them in memory that the daemon reads from
 * outside: probe_agent_record.allocations says where.
 *
 * A site is published by the growth of `sites`, and its stack never changes after that; its numbers
 * do, each by itself. The reader takes it all for hostile. */
#pragma once

#include "agent/wire/ring_format.h"

#define ALLOCATIONS_MAGIC 0x45544953464250ull /* "PBFSITE" */
#define ALLOCATION_SITES_MAX 4096u            /* the last one has all for which there is no room */
#define ALLOCATION_MEAN (512u << 10)          /* bytes from one sample to the next */
#define ALLOCATION_MEAN_MIN 1024u
#define ALLOCATION_MEAN_MAX (1u << 30)

struct allocation_site {
    uint64_t hash;      /* of its frames */
    uint64_t allocated; /* bytes that its samples stand for, since sampling began ... */
    uint64_t living;    /* ... and of these, those that were not given back */
    uint64_t samples, living_samples;
    uint32_t start; /* where in `stack` it begins; it ends at its end */
    uint32_t zero;
    char stack[RING_TEXT_MAX]; /* func (file:line), outermost first, joined by semicolons */
};

struct allocations {
    uint64_t magic;
    uint32_t on;
    uint32_t sites; /* how many there are */
    uint64_t mean;  /* bytes from one sample to the next */
    double since;   /* [s] since 1970, when sampling began */
    double until;   /* when it was switched off; 0: it wasn't */
    uint64_t samples;
    uint64_t lost;       /* samples that could not be taken: another interpreter was at it */
    uint64_t unfollowed; /* samples whose end isn't seen: too many live. Not among the living */
    struct allocation_site site[ALLOCATION_SITES_MAX];
};

_Static_assert(sizeof(struct allocation_site) == 48 + RING_TEXT_MAX, "allocations");
_Static_assert(sizeof(struct allocations) ==
                   64 + ALLOCATION_SITES_MAX * sizeof(struct allocation_site),
               "allocations");
