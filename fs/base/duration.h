/* Spans of time as people write them: 500ms, 60s, 5m, 2h, 7d. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Nanoseconds. A number too large for that becomes UINT64_MAX. False: it is no
 * number with one of those units. */
bool duration_parse(const char *text, size_t size, uint64_t *out);
