/* Numbers of bytes as people write them: 65536, 64K, 16M, 1G. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One too large for that becomes UINT64_MAX. False: it is no such number. */
bool size_parse(const char *text, size_t size, uint64_t *out);
