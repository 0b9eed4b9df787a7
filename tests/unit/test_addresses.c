#include "fs/base/addresses.h"
#include "tests/unit/check.h"

#define N 5000u

/* All far apart, or one beside the other. */
static void finds(uint64_t first, uint64_t step)
{
    struct addresses addresses = {0};

    CHECK_INT(addresses_find(&addresses, first), ADDRESSES_NONE);
    for (uint32_t i = 0; i < N; i++)
        CHECK_INT(addresses_set(&addresses, first + i * step, i), 0);
    for (uint32_t i = 0; i < N; i++)
        CHECK_INT(addresses_find(&addresses, first + i * step), i);
    CHECK_INT(addresses_find(&addresses, first + N * step), ADDRESSES_NONE);
    CHECK_INT(addresses_set(&addresses, first + step, 7), 0);
    CHECK_INT(addresses_find(&addresses, first + step), 7);
    CHECK_INT(addresses.n, N);
    addresses_clear(&addresses);
    CHECK_INT(addresses_find(&addresses, first), ADDRESSES_NONE);
    CHECK_INT(addresses_set(&addresses, first, 1), 0);
    CHECK_INT(addresses_find(&addresses, first), 1);
    addresses_deinit(&addresses);
    CHECK_INT(addresses_find(&addresses, first), ADDRESSES_NONE);
}

int main(void)
{
    finds(0x7f3a4c10, 16);
    finds(1, 1);
    finds(0x7f0000000000, 1 << 20);
    finds(UINT64_MAX, (uint64_t)-48);
    CHECK_INT(addresses_find(&(struct addresses){0}, 0), ADDRESSES_NONE);
    return 0;
}
