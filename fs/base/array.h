/* Arrays that grow. */
#pragma once

#include <stdlib.h>
#include <string.h>

/* Room for at least n items of `item` bytes in a malloc'ed array that has room for *alloc: the
 * array, perhaps moved, with new room zeroed; NULL when out of memory, and then the old array is
 * as it was. */
static inline void *array_grow(void *array, size_t *alloc, size_t n, size_t item)
{
    size_t want = *alloc ? *alloc : 32;

    if (n <= *alloc)
        return array;
    while (want < n)
        want *= 2;
    void *more = realloc(array, want * item);
    if (more) {
        memset((char *)more + *alloc * item, 0, (want - *alloc) * item);
        *alloc = want;
    }
    return more;
}

/* clang-format off */
/* array_grow() of a variable: 0 or -ENOMEM. */
#define ARRAY_GROW(array, alloc, n)                                             \
    ({                                                                          \
        void *grown_ = array_grow((array), &(alloc), (n), sizeof *(array));     \
        if (grown_)                                                             \
            (array) = grown_;                                                   \
        grown_ || (n) == 0 ? 0 : -ENOMEM;                                       \
    })

/* Of n things in ascending order, how many there are before a place: `before` says whether that
 * with the index i is. */
#define LOWER_BOUND(n, i, before)                                               \
    ({                                                                          \
        size_t low_ = 0, high_ = (n);                                           \
        while (low_ < high_) {                                                  \
            size_t i = low_ + (high_ - low_) / 2;                               \
            if (before)                                                         \
                low_ = i + 1;                                                   \
            else                                                                \
                high_ = i;                                                      \
        }                                                                       \
        low_;                                                                   \
    })
/* clang-format on */

/* qsort(3) that takes NULL where there are no items. */
static inline void array_sort(void *array, size_t n, size_t item,
                              int (*compare)(const void *a, const void *b))
{
    if (n > 1)
        qsort(array, n, item, compare);
}
