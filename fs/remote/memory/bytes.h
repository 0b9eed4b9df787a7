/* Reading forward through a copy that is not trusted: past the end every read gives 0 and `bad`
 * stays set, so that a parser checks once, at its end. */
#pragma once

#include "fs/remote/memory/memory.h"

struct bytes {
    const uint8_t *at, *end;
    bool bad;
};

static inline bool bytes_take(struct bytes *b, size_t n)
{
    if (b->bad || (size_t)(b->end - b->at) < n) {
        b->bad = true;
        b->at = b->end;
        return false;
    }
    b->at += n;
    return true;
}

static inline uint8_t bytes_u8(struct bytes *b) { return bytes_take(b, 1) ? b->at[-1] : 0; }

static inline uint16_t bytes_u16(struct bytes *b)
{
    return bytes_take(b, 2) ? load16(b->at - 2) : 0;
}

static inline uint32_t bytes_u32(struct bytes *b)
{
    return bytes_take(b, 4) ? load32(b->at - 4) : 0;
}

static inline uint64_t bytes_u64(struct bytes *b)
{
    return bytes_take(b, 8) ? load64(b->at - 8) : 0;
}

/* LEB128, DWARF 5, section 7.6. */
static inline uint64_t bytes_uleb(struct bytes *b)
{
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        uint8_t byte = bytes_u8(b);
        if (shift < 64)
            value |= (uint64_t)(byte & 127) << shift;
        if (!(byte & 128))
            return value;
    }
}

static inline int64_t bytes_sleb(struct bytes *b)
{
    uint64_t value = 0;
    for (unsigned shift = 0;;) {
        uint8_t byte = bytes_u8(b);
        if (shift < 64)
            value |= (uint64_t)(byte & 127) << shift;
        shift += 7;
        if (!(byte & 128)) {
            if (shift < 64 && byte & 64)
                value |= ~0ull << shift;
            return (int64_t)value;
        }
    }
}
