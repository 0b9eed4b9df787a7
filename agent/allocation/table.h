/* The sampled blocks that live, by their addresses, and the sites that allocated them. Pure: no
 * interpreter, no lock; its caller sees to it that one thread at a time is inside. */
#pragma once

#include "agent/wire/allocations.h"

#include <stdbool.h>

#define LIVING_MAX 65536u /* blocks; a power of two, of which three quarters are used */
#define LIVING_BITS 65536u

struct table {
    struct allocations seen;                  /* what the daemon reads */
    uint32_t index[2 * ALLOCATION_SITES_MAX]; /* by the hash of a site: its number + 1; 0: free */
    /* How many living blocks there are whose addresses are alike: mostly none, which says at once
     * that a block isn't among them. */
    uint16_t alike[LIVING_BITS];
    struct living {
        uint64_t address; /* 0: free */
        uint64_t weight;
        uint32_t site;
        uint32_t zero;
    } living[LIVING_MAX];
    uint32_t n; /* of these */
};

/* Forgets everything, and begins. */
void table_begin(struct table *table, uint64_t mean, double now);

/* Whether a block may be among the living ones. Any thread. */
static inline bool table_may_have(const struct table *table, const void *block)
{
    return __builtin_expect(
        __atomic_load_n(&table->alike[(uintptr_t)block >> 4 & (LIVING_BITS - 1)],
                        __ATOMIC_RELAXED) != 0,
        0);
}

/* The site of that hash; NULL: it is new. */
struct allocation_site *table_find(struct table *table, uint64_t hash);
/* Makes it, its stack to be filled in before table_publish(). The last one, which is for all that
 * there is no room for, has hash 0, and needs neither. */
struct allocation_site *table_make(struct table *table, uint64_t hash);
void table_publish(struct table *table, struct allocation_site *site);

/* A sample of a site: a block that stands for so many bytes. */
void table_add(struct table *table, struct allocation_site *site, const void *block,
               uint64_t weight);
/* A block was given back; it may be none of ours. */
void table_drop(struct table *table, const void *block);
