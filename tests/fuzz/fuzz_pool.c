/* Memory of a target that looks like a pool of small objects. */
#include "fs/remote/heap/pool.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#define ADDR 0x10000u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint32_t sizes[] = {POOL_OLD, POOL_MAX};
    static uint8_t copy[POOL_MAX];
    struct pool pool;

    memset(copy, 0, sizeof copy);
    if (size)
        memcpy(copy, data, size < sizeof copy ? size : sizeof copy);
    for (int i = 0; i < 2; i++) {
        uint32_t n = 0;
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
