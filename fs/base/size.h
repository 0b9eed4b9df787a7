/* Numbers of bytes as people write them: 65536, 64K, 16M, 1G. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads such a number; one that is too large becomes UINT64_MAX. False: the text is none. */
bool size_parse(const char *text, size_t size, uint64_t *out);
