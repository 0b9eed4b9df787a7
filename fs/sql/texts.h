/* The different texts of a column, each kept once and known by its number: columns repeat them, and
 * what compares numbers is fast. Their memory is SQLite's, as that of the rows (rows.h). */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct texts_item {
    const char *bytes; /* not terminated */
    uint32_t size;
    uint32_t hash;
};

struct texts_chunk;

struct texts {
    struct texts_item *items; /* that of number n is the one at n - 1 */
    size_t n, alloc;
    uint32_t *slots; /* numbers, by hash; 0: free */
    size_t nslots;   /* a power of two, or 0 */
    struct texts_chunk *chunks;
};

void texts_deinit(struct texts *texts);

/* The number of a text, which is copied if it is a new one. 0: out of memory. */
uint32_t texts_add(struct texts *texts, const char *bytes, size_t size);

/* The number of a text that is there; 0: it isn't. */
uint32_t texts_find(const struct texts *texts, const char *bytes, size_t size);

static inline const struct texts_item *texts_get(const struct texts *texts, uint32_t number)
{
    return &texts->items[number - 1];
}
