/* Numbers as people write many of them: 0,2-3. */
#pragma once

#include "fs/base/text.h"

#include <stdint.h>

#define RANGES_MAX 256 /* of one text */

struct ranges {
    struct range {
        unsigned low, high; /* both belong to it */
    } items[RANGES_MAX];
    size_t n;
};

/* Reads `size` bytes, all of which must be ranges. False, and *wrong points to what isn't one, or
 * is one too many. */
bool ranges_parse(const char *text, size_t size, struct ranges *out, const char **wrong);
bool ranges_have(const struct ranges *ranges, int64_t number);

/* Adds n ascending numbers: "0-2,4-7". One that comes twice is written once. */
void ranges_add_text(const int64_t *numbers, size_t n, struct text *out);
