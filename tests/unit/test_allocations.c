/* Sampling by bytes: its gaps and weights against libm, and the table of what lives against a plain
 * list of it. */
#include "agent/allocation/gap.h"
#include "agent/allocation/table.h"
#include "tests/unit/check.h"

#include <math.h>

static struct table table;

static void gaps(void)
{
    uint64_t random = 42;
    double sum = 0, mean = 512 << 10;
    const int n = 1000000;

    for (double x = 1e-16; x < 1e6; x *= 1.37)
        CHECK(fabs(gap_log(x) - log(x)) < 1e-9 * (1 + fabs(log(x))));
    for (double x = 1e-9; x < 200; x *= 1.21)
        CHECK(fabs(gap_share(x) / -expm1(-x) - 1) < 1e-9);
    CHECK(gap_share(0) == 0);
    for (int i = 0; i < n; i++) {
        int64_t gap = gap_next(&random, mean);
        CHECK(gap > 0);
        sum += (double)gap;
    }
    CHECK(fabs(sum / n / mean - 1) < .01); /* its error is .001 */
    CHECK_INT(gap_weight(0, mean), 0);
    CHECK(llabs((long long)gap_weight(16, mean) - (512 << 10)) < 16);
    CHECK_INT(gap_weight(1ull << 32, mean), 1ull << 32);
}

/* What is sampled stands for all: sizes of each kind keep their share. */
static void shares(void)
{
    const uint64_t sizes[] = {16, 500, 70000, 3000000};
    double mean = 64 << 10, of[4] = {0};
    uint64_t random = 7;
    int64_t left = gap_next(&random, mean);

    for (int i = 0; i < 4000000; i++) {
        uint64_t size = sizes[i % 4];
        left -= (int64_t)size;
        if (left > 0)
            continue;
        left = gap_next(&random, mean);
        of[i % 4] += (double)gap_weight(size, mean);
    }
    CHECK(fabs(of[0] / 16e6 - 1) < .4); /* 244 samples: its error is .06 */
    CHECK(fabs(of[1] / 500e6 - 1) < .1);
    CHECK(fabs(of[2] / 70000e6 - 1) < .02);
    CHECK(fabs(of[3] / 3000000e6 - 1) < .01);
}

static struct allocation_site *site_of(uint64_t hash)
{
    struct allocation_site *site = table_find(&table, hash);

    if (site)
        return site;
    site = table_make(&table, hash);
    if (site->hash)
        table_publish(&table, site);
    return site;
}

#define BLOCKS 60000u

/* Blocks come and go; addresses are often alike. */
static void living(void)
{
    static struct {
        uint64_t address, weight, hash;
    } blocks[BLOCKS];
    uint64_t expected[64] = {0}, state = 1;
    uint32_t n = 0;

    table_begin(&table, 1 << 16, 1.5);
    for (int i = 0; i < 2000000; i++) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        uint32_t at = (uint32_t)(state >> 33) % BLOCKS;
        if (blocks[at].address) {
            table_drop(&table, (void *)(uintptr_t)blocks[at].address);
            expected[blocks[at].hash] -= blocks[at].weight;
            blocks[at].address = 0;
            n--;
        } else if (n < LIVING_MAX / 4 * 3) {
            blocks[at].hash = 1 + state % 63;
            blocks[at].weight = 1 + state % 1000;
            blocks[at].address = 0x7f0000000000ull + at * 16 + ((uint64_t)(at % 7) << 32);
            table_add(&table, site_of(blocks[at].hash), (void *)(uintptr_t)blocks[at].address,
                      blocks[at].weight);
            expected[blocks[at].hash] += blocks[at].weight;
            n++;
        }
        table_drop(&table, (void *)(uintptr_t)(0x123450ull + i * 16ull)); /* none of ours */
    }
    CHECK_INT(table.n, n);
    CHECK_INT(table.seen.sites, 63);
    CHECK_INT(table.seen.unfollowed, 0);
    for (uint64_t hash = 1; hash < 64; hash++)
        CHECK_INT(table_find(&table, hash)->living, expected[hash]);
    for (uint32_t i = 0; i < BLOCKS; i++)
        if (blocks[i].address) {
            CHECK(table_may_have(&table, (void *)(uintptr_t)blocks[i].address));
            table_drop(&table, (void *)(uintptr_t)blocks[i].address);
        }
    CHECK_INT(table.n, 0);
    for (uint64_t hash = 1; hash < 64; hash++)
        CHECK(!table_find(&table, hash)->living && !table_find(&table, hash)->living_samples);
    for (uint32_t i = 0; i < LIVING_BITS; i++)
        CHECK(!table.alike[i]);
}

/* More sites, and more that lives, than there is room for. */
static void limits(void)
{
    table_begin(&table, 1 << 16, 1.5);
    for (uint64_t i = 1; i <= 2 * ALLOCATION_SITES_MAX; i++)
        table_add(&table, site_of(i), (void *)(uintptr_t)(i * 16), 1);
    CHECK_INT(table.seen.sites, ALLOCATION_SITES_MAX);
    const struct allocation_site *others = &table.seen.site[ALLOCATION_SITES_MAX - 1];
    CHECK_INT(others->hash, 0);
    CHECK_INT(others->living, ALLOCATION_SITES_MAX + 1);
    for (uint64_t i = 1; i <= LIVING_MAX; i++)
        table_add(&table, site_of(1), (void *)(uintptr_t)(i * 16 + (1ull << 40)), 1);
    CHECK_INT(table.n, LIVING_MAX / 4 * 3);
    CHECK_INT(table.seen.unfollowed, LIVING_MAX + 2 * ALLOCATION_SITES_MAX - LIVING_MAX / 4 * 3);
    CHECK_INT(table_find(&table, 1)->allocated, LIVING_MAX + 1);
    table_begin(&table, 1 << 16, 2.5);
    CHECK(!table.seen.sites && !table.n && !table_find(&table, 1));
}

int main(void)
{
    gaps();
    shares();
    living();
    limits();
    return 0;
}
