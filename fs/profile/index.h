/* Finds numbers by what they stand for: open addressing, nothing is ever taken out. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct index {
    struct index_slot {
        uint32_t hash, number; /* the number + 1; 0: free */
    } * slots;
    size_t n, room;
};

/* Mixes a value into a hash that began as 0. */
static inline uint64_t hash_add(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}
uint64_t hash_text(const char *text);

/* Walks over the numbers with a hash: *step starts at 0 and is kept between the calls. False:
 * there are no more. */
bool index_next(const struct index *index, uint64_t hash, size_t *step, uint32_t *number);
/* -ENOMEM. */
int index_add(struct index *index, uint64_t hash, uint32_t number);
void index_clear(struct index *index);
size_t index_bytes(const struct index *index);
