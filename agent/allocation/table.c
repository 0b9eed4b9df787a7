#include "agent/allocation/table.h"

#include <string.h>

static uint16_t *alike(struct table *table, uint64_t address)
{
    return &table->alike[address >> 4 & (LIVING_BITS - 1)];
}

static uint32_t place(uint64_t address)
{
    return (uint32_t)(address * 0x9e3779b97f4a7c15ull >> 32) & (LIVING_MAX - 1);
}

static uint32_t *slot(struct table *table, uint64_t hash)
{
    uint32_t i = (uint32_t)hash & (2 * ALLOCATION_SITES_MAX - 1);

    while (table->index[i] && table->seen.site[table->index[i] - 1].hash != hash)
        i = (i + 1) & (2 * ALLOCATION_SITES_MAX - 1);
    return &table->index[i];
}

void table_begin(struct table *table, uint64_t mean, double now)
{
    memset(table->index, 0, sizeof table->index);
    memset(table->alike, 0, sizeof table->alike);
    memset(table->living, 0, sizeof table->living);
    table->n = 0;
    __atomic_store_n(&table->seen.sites, 0, __ATOMIC_RELEASE);
    table->seen.magic = ALLOCATIONS_MAGIC;
    table->seen.mean = mean;
    table->seen.since = now;
    table->seen.until = 0;
    table->seen.samples = table->seen.lost = table->seen.unfollowed = 0;
}

struct allocation_site *table_find(struct table *table, uint64_t hash)
{
    uint32_t number = *slot(table, hash);

    return number ? &table->seen.site[number - 1] : NULL;
}

struct allocation_site *table_make(struct table *table, uint64_t hash)
{
    uint32_t n = table->seen.sites;
    bool last = n + 1 >= ALLOCATION_SITES_MAX;

    if (n == ALLOCATION_SITES_MAX)
        return &table->seen.site[n - 1];
    struct allocation_site *site = &table->seen.site[n];
    memset(site, 0, sizeof *site);
    site->hash = last ? 0 : hash;
    site->start = sizeof site->stack;
    if (last)
        table_publish(table, site);
    return site;
}

void table_publish(struct table *table, struct allocation_site *site)
{
    uint32_t n = (uint32_t)(site - table->seen.site);

    if (site->hash)
        *slot(table, site->hash) = n + 1;
    __atomic_store_n(&table->seen.sites, n + 1, __ATOMIC_RELEASE);
}

static void add(uint64_t *number, uint64_t by)
{
    __atomic_store_n(number, *number + by, __ATOMIC_RELAXED);
}

void table_add(struct table *table, struct allocation_site *site, const void *block,
               uint64_t weight)
{
    uint64_t address = (uintptr_t)block;
    uint16_t *count = alike(table, address);

    add(&table->seen.samples, 1);
    add(&site->samples, 1);
    add(&site->allocated, weight);
    if (table->n >= LIVING_MAX / 4 * 3 || *count == UINT16_MAX) {
        add(&table->seen.unfollowed, 1);
        return;
    }
    uint32_t i = place(address);
    while (table->living[i].address)
        i = (i + 1) & (LIVING_MAX - 1);
    table->living[i] = (struct living){address, weight, (uint32_t)(site - table->seen.site), 0};
    table->n++;
    __atomic_store_n(count, *count + 1, __ATOMIC_RELAXED);
    add(&site->living, weight);
    add(&site->living_samples, 1);
}

/* Closes the gap, so that who comes by the place finds what stands behind it. */
static void close_gap(struct table *table, uint32_t gap)
{
    for (uint32_t i = gap;;) {
        i = (i + 1) & (LIVING_MAX - 1);
        if (!table->living[i].address)
            break;
        uint32_t wanted = place(table->living[i].address);
        if (((i - wanted) & (LIVING_MAX - 1)) >= ((i - gap) & (LIVING_MAX - 1))) {
            table->living[gap] = table->living[i];
            gap = i;
        }
    }
    table->living[gap] = (struct living){0};
}

void table_drop(struct table *table, const void *block)
{
    uint64_t address = (uintptr_t)block;
    uint32_t i = place(address);

    while (table->living[i].address && table->living[i].address != address)
        i = (i + 1) & (LIVING_MAX - 1);
    if (!table->living[i].address)
        return;
    struct allocation_site *site = &table->seen.site[table->living[i].site];
    uint16_t *count = alike(table, address);
    add(&site->living, -table->living[i].weight);
    add(&site->living_samples, (uint64_t)-1);
    __atomic_store_n(count, *count - 1, __ATOMIC_RELAXED);
    table->n--;
    close_gap(table, i);
}
