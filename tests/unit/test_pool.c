/* Pools of the small objects' allocator, laid out as Objects/obmalloc.c does. */
#include "fs/remote/heap/pool.h"
#include "tests/unit/check.h"

#define ADDR 0x7f0000104000ull

struct header {
    uint32_t count, pad;
    uint64_t free_block, next, previous;
    uint32_t arena, size_index, next_offset, max_next_offset;
};

static uint8_t data[POOL_MAX];

/* A pool of blocks of so many bytes, of which the first n were in use and `given` are given back.
 */
static struct header *make(uint32_t size, uint32_t block, uint32_t n, const uint32_t *given,
                           int back)
{
    struct header header = {
        .count = n - (uint32_t)back,
        .size_index = block / 16 - 1,
        .next_offset = POOL_HEADER + n * block,
        .max_next_offset = size - block,
    };

    memset(data, 0xa5, sizeof data);
    for (int i = 0; i < back; i++) {
        uint32_t at = POOL_HEADER + given[i] * block;
        memcpy(data + at, &header.free_block, 8);
        header.free_block = ADDR + at;
    }
    memcpy(data, &header, sizeof header);
    return (struct header *)(void *)data;
}

static uint32_t count(const struct pool *pool)
{
    uint32_t n = 0;

    for (uint32_t at = pool_next(pool, POOL_HEADER); at < pool->end;
         at = pool_next(pool, at + pool->block))
        n++;
    return n;
}

int main(void)
{
    const uint32_t given[] = {3, 0, 9};
    struct pool pool;

    CHECK(sizeof(struct header) == POOL_HEADER);
    CHECK_INT(pool_size(0x03091200), POOL_OLD);
    CHECK_INT(pool_size(0x030a0000), POOL_MAX);
    for (uint32_t block = 16; block <= POOL_BLOCK; block += 16) {
        make(POOL_MAX, block, 10, given, 3);
        CHECK(pool_parse(data, POOL_MAX, ADDR, &pool));
        CHECK(!pool.torn);
        CHECK_INT(pool.block, block);
        CHECK_INT(count(&pool), 7);
        CHECK_INT(pool_next(&pool, POOL_HEADER), POOL_HEADER + block); /* the first is free */
        CHECK(!pool_parse(data, POOL_OLD, ADDR, &pool));
        make(POOL_OLD, block, 10 * block < POOL_OLD - POOL_HEADER ? 10 : 7, given, 2);
        CHECK(pool_parse(data, POOL_OLD, ADDR, &pool) && !pool.torn);
    }
    uint32_t all = (POOL_MAX - POOL_HEADER) / 16;
    make(POOL_MAX, 16, all, NULL, 0);
    CHECK(pool_parse(data, POOL_MAX, ADDR, &pool) && !pool.torn);
    CHECK_INT(count(&pool), all);

    /* what changed while it was copied */
    make(POOL_MAX, 64, 10, given, 3)->count = 8;
    CHECK(pool_parse(data, POOL_MAX, ADDR, &pool) && pool.torn);
    make(POOL_MAX, 64, 10, given, 3);
    memset(data + POOL_HEADER + 3 * 64, 0x5a, 8); /* its list leads elsewhere */
    CHECK(pool_parse(data, POOL_MAX, ADDR, &pool) && pool.torn);
    make(POOL_MAX, 64, 10, given, 3);
    memcpy(data + POOL_HEADER + 3 * 64, &(uint64_t){ADDR + POOL_HEADER + 9 * 64}, 8); /* a circle */
    CHECK(pool_parse(data, POOL_MAX, ADDR, &pool) && pool.torn);

    /* what is none */
    make(POOL_MAX, 64, 10, given, 3)->count = 0;
    CHECK(!pool_parse(data, POOL_MAX, ADDR, &pool));
    make(POOL_MAX, 64, 10, given, 3)->count = 11;
    CHECK(!pool_parse(data, POOL_MAX, ADDR, &pool));
    make(POOL_MAX, 64, 10, given, 3)->size_index = 32;
    CHECK(!pool_parse(data, POOL_MAX, ADDR, &pool));
    make(POOL_MAX, 64, 10, given, 3)->size_index = UINT32_MAX;
    CHECK(!pool_parse(data, POOL_MAX, ADDR, &pool));
    make(POOL_MAX, 64, 10, given, 3)->next_offset++;
    CHECK(!pool_parse(data, POOL_MAX, ADDR, &pool));
    make(POOL_MAX, 64, 10, given, 3)->max_next_offset++;
    CHECK(!pool_parse(data, POOL_MAX, ADDR, &pool));
    make(POOL_MAX, 64, 10, given, 3)->free_block = ADDR + POOL_MAX;
    CHECK(!pool_parse(data, POOL_MAX, ADDR, &pool));
    memset(data, 0, sizeof data);
    CHECK(!pool_parse(data, POOL_MAX, ADDR, &pool));
    return 0;
}
