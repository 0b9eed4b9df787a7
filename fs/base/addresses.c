#include "fs/base/addresses.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ALLOC_FIRST 64 /* slots, of which three quarters are used at most */

/* The slot of an address, or the one where there is room for it. */
static size_t slot_of(const struct addresses *addresses, uint64_t address)
{
    size_t slot = (address >> 4) * 0x9e3779b97f4a7c15u >> 32; /* Fibonacci hashing */

    for (;; slot++) {
        slot &= addresses->alloc - 1;
        if (!addresses->slots[slot].address || addresses->slots[slot].address == address)
            return slot;
    }
}

uint32_t addresses_find(const struct addresses *addresses, uint64_t address)
{
    if (!addresses->n || !address)
        return ADDRESSES_NONE;
    size_t slot = slot_of(addresses, address);
    return addresses->slots[slot].address ? addresses->slots[slot].number : ADDRESSES_NONE;
}

static int grow(struct addresses *addresses)
{
    struct addresses more = {.alloc = addresses->alloc ? 2 * addresses->alloc : ALLOC_FIRST};

    more.slots = calloc(more.alloc, sizeof *more.slots);
    if (!more.slots)
        return -ENOMEM;
    for (size_t i = 0; i < addresses->alloc; i++)
        if (addresses->slots[i].address)
            more.slots[slot_of(&more, addresses->slots[i].address)] = addresses->slots[i];
    more.n = addresses->n;
    free(addresses->slots);
    *addresses = more;
    return 0;
}

int addresses_set(struct addresses *addresses, uint64_t address, uint32_t number)
{
    if (4 * (addresses->n + 1) > 3 * addresses->alloc && grow(addresses) < 0)
        return -ENOMEM;
    size_t slot = slot_of(addresses, address);
    addresses->n += !addresses->slots[slot].address;
    addresses->slots[slot].address = address;
    addresses->slots[slot].number = number;
    return 0;
}

void addresses_clear(struct addresses *addresses)
{
    if (addresses->n)
        memset(addresses->slots, 0, addresses->alloc * sizeof *addresses->slots);
    addresses->n = 0;
}

void addresses_deinit(struct addresses *addresses)
{
    free(addresses->slots);
    *addresses = (struct addresses){0};
}
