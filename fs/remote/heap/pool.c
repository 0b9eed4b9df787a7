#include "fs/remote/heap/pool.h"

#include "agent/base/load.h"

#include <string.h>

/* struct pool_header */
#define COUNT 0
#define FREE_BLOCK 8
#define ARENA_INDEX 32
#define SIZE_INDEX 36
#define NEXT_OFFSET 40
#define MAX_NEXT_OFFSET 44

#define ARENA_INDEX_MAX (1u << 20)

static bool is_free(const struct pool *pool, uint32_t offset)
{
    return pool->is_free[offset / POOL_UNIT / 64] >> (offset / POOL_UNIT % 64) & 1;
}

/* Goes along the list of blocks that were given back. */
static void mark_free(struct pool *pool, uint32_t size, uint64_t addr)
{
    uint64_t at = load64(pool->data + FREE_BLOCK);

    while (at) {
        uint64_t offset = at - addr;
        bool fits = offset >= POOL_HEADER && offset < pool->end && offset + 8 <= size &&
                    (offset - POOL_HEADER) % pool->block == 0;
        if (!fits || is_free(pool, (uint32_t)offset)) {
            pool->torn = true;
            return;
        }
        pool->is_free[offset / POOL_UNIT / 64] |= 1ull << (offset / POOL_UNIT % 64);
        pool->free++;
        at = load64(pool->data + offset);
    }
}

bool pool_begins(const uint8_t *header, uint32_t size, uint64_t addr)
{
    uint32_t index = load32(header + SIZE_INDEX), next = load32(header + NEXT_OFFSET);
    uint32_t block = (index + 1) * POOL_UNIT, used = load32(header + COUNT);
    uint64_t free = load64(header + FREE_BLOCK);

    return index < POOL_BLOCK / POOL_UNIT && load32(header + MAX_NEXT_OFFSET) == size - block &&
           next >= POOL_HEADER + block && next <= size && (next - POOL_HEADER) % block == 0 &&
           used && used <= (next - POOL_HEADER) / block &&
           load32(header + ARENA_INDEX) < ARENA_INDEX_MAX && (!free || free - addr < size);
}

uint32_t pool_block(const uint8_t *header) { return (load32(header + SIZE_INDEX) + 1) * POOL_UNIT; }

bool pool_parse(const uint8_t *data, uint32_t size, uint64_t addr, struct pool *out)
{
    if (!pool_begins(data, size, addr))
        return false;
    *out = (struct pool){
        .data = data,
        .block = pool_block(data),
        .end = load32(data + NEXT_OFFSET),
        .used = load32(data + COUNT),
    };
    mark_free(out, size, addr);
    out->torn |= out->used + out->free != (out->end - POOL_HEADER) / out->block;
    return true;
}

uint32_t pool_next(const struct pool *pool, uint32_t offset)
{
    while (offset < pool->end && is_free(pool, offset))
        offset += pool->block;
    return offset;
}
