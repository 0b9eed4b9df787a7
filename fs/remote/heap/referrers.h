/* What refers to an object, or to all objects of a type: found by going through the memory of the
 * process for their addresses, and then for what those stand in.
 *
 * What is found is an object of at most 512 bytes that has the address in itself, or in a table
 * that it points to (of a list, dict, set, deque or instance). Nothing stands still for it. */
#pragma once

#include "fs/remote/heap/block.h"
#include "fs/remote/heap/scan.h"

#define REFERENTS_MAX (1u << 20) /* objects that are looked for */
#define REFERENCES_MAX (1u << 21)

struct referrer {
    uint64_t object; /* its address */
    uint32_t type;   /* of block_types.items */
    uint64_t count;  /* how often it refers to them */
};

#define ADDRESS_BITS (1u << 22)

struct addresses {
    uint64_t *slots; /* hashed, 0: none */
    size_t n, room;
    uint64_t low, high;
    uint8_t
        *seen; /* a bit for all addresses that are alike: mostly it is 0, which is enough to know */
};

struct referrers {
    /* how it is to be read, set before */
    int (*unwanted)(const void *arg);
    const void *unwanted_arg;

    struct target *target;
    struct block_types types;
    struct addresses of;    /* what is looked for */
    struct referrer *items; /* who refers to most of them first */
    size_t n, alloc;
    uint64_t elsewhere; /* references that stand in no object: stacks, C's memory, what was freed */
    bool cut;           /* not all of them, or of the memory */
    uint64_t ns;        /* that it took */
};

/* Begins, for a supported interpreter that isn't free-threaded. -ENOMEM. */
int referrers_init(struct referrers *referrers, struct target *target);
void referrers_deinit(struct referrers *referrers);
/* Looks for one object; more are added by further calls. -ENOMEM. */
int referrers_want(struct referrers *referrers, uint64_t object);
/* Looks for all objects of the types of this name. -ENOENT: there is none; errors of scan_run(). */
int referrers_want_type(struct referrers *referrers, const char *name);
/* Whether it is one that is looked for. */
bool referrers_wanted(const struct referrers *referrers, uint64_t object);
/* Finds who refers to them. 0 or errors of scan_run(). */
int referrers_find(struct referrers *referrers);
/* Looks for nothing any more, and has found nothing. */
void referrers_clear(struct referrers *referrers);
