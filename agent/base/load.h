/* Unaligned loads, from a copy of memory that is another process's. */
#pragma once

#include <stdint.h>

static inline uint64_t load64(const void *p)
{
    uint64_t v;
    __builtin_memcpy(&v, p, 8);
    return v;
}
static inline uint32_t load32(const void *p)
{
    uint32_t v;
    __builtin_memcpy(&v, p, 4);
    return v;
}
static inline uint16_t load16(const void *p)
{
    uint16_t v;
    __builtin_memcpy(&v, p, 2);
    return v;
}
