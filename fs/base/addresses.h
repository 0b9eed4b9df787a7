/* Numbers by addresses, of which one is quickly found among many. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define ADDRESSES_NONE UINT32_MAX

/* Start with {0}. */
struct addresses {
    struct {
        uint64_t address; /* 0: none */
        uint32_t number;
    } * slots;
    size_t n, alloc; /* alloc: a power of two */
};

/* The number of an address; ADDRESSES_NONE: it has none. */
uint32_t addresses_find(const struct addresses *addresses, uint64_t address);
/* Gives it one, in place of the one that it has. address isn't 0. 0; -ENOMEM: it is as it was. */
int addresses_set(struct addresses *addresses, uint64_t address, uint32_t number);
/* Forgets all of them, but keeps the memory. */
void addresses_clear(struct addresses *addresses);
void addresses_deinit(struct addresses *addresses);
