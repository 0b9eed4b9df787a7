/* Memory of a target that looks like a pool of small objects: a header that is right as far as the
 * input wants it, and blocks whose words lead anywhere in the pool. */
#include "fs/remote/heap/pool.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#define ADDR 0x10000u

struct header {
    uint32_t count, pad;
    uint64_t free_block, next, previous;
    uint32_t arena, size_index, next_offset, max_next_offset;
};

static uint8_t copy[POOL_MAX];

static void make(const uint8_t *data, size_t size, uint32_t pool)
{
    struct header header = {.size_index = data[0] % 33};
    uint32_t block = (header.size_index + 1) * POOL_UNIT, all = (pool - POOL_HEADER) / block;

    header.count = data[1] + (data[2] & 3u) * 256u;
    header.next_offset = POOL_HEADER + block * (data[3] ? 1 + data[3] % all : all) + (data[2] >> 7);
    header.max_next_offset = pool - block;
    header.free_block = data[4] ? ADDR + POOL_HEADER + data[4] * block : 0;
    memset(copy, 0, sizeof copy);
    for (size_t i = 0; 5 + 2 * i + 1 < size && POOL_HEADER + (i + 1) * 8 <= pool; i++) {
        uint64_t word = data[5 + 2 * i] | data[6 + 2 * i] << 8;
        word = word ? ADDR + word : 0;
        memcpy(copy + POOL_HEADER + i * 8, &word, 8);
    }
    memcpy(copy, &header, sizeof header);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint32_t sizes[] = {POOL_OLD, POOL_MAX};
    struct pool pool;

    for (int i = 0; i < 2 && size >= 5; i++) {
        uint32_t n = 0;
        make(data, size, sizes[i]);
        if (!pool_parse(copy, sizes[i], ADDR, &pool))
            continue;
        for (uint32_t at = pool_next(&pool, POOL_HEADER); at < pool.end;
             at = pool_next(&pool, at + pool.block), n++)
            if (at < POOL_HEADER || at + pool.block > sizes[i])
                abort();
        if (!pool.torn && n != pool.used)
            abort();
    }
    return 0;
}
