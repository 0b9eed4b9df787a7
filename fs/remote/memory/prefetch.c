#include "fs/remote/memory/prefetch.h"

#include <stdlib.h>

#define ROUND_MAX (1u << 17) /* asked for between two fetches */

static void add(struct prefetch *prefetch, uint64_t page)
{
    if (prefetch->n && prefetch->items[prefetch->n - 1] == page)
        return;
    if (prefetch->n == prefetch->alloc) {
        size_t alloc = prefetch->alloc ? prefetch->alloc * 2 : 256;
        uint64_t *more = alloc <= ROUND_MAX ? realloc(prefetch->items, alloc * sizeof *more) : NULL;
        if (!more)
            return;
        prefetch->items = more;
        prefetch->alloc = alloc;
    }
    prefetch->items[prefetch->n++] = page;
}

void prefetch_want(struct prefetch *prefetch, uint64_t addr, uint32_t len)
{
    uint64_t first = addr & ~(uint64_t)(PREFETCH_PAGE - 1);

    if (!addr || addr > INT64_MAX)
        return;
    add(prefetch, first);
    if (addr + len > first + PREFETCH_PAGE)
        add(prefetch, first + PREFETCH_PAGE);
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

int prefetch_run(struct prefetch *prefetch, struct view *view)
{
    const uint8_t *unused;

    if (prefetch->n > 1)
        qsort(prefetch->items, prefetch->n, sizeof *prefetch->items, by_value);
    for (size_t i = 0; i < prefetch->n; i++)
        if (!i || prefetch->items[i] != prefetch->items[i - 1])
            (void)view_get(view, prefetch->items[i], PREFETCH_PAGE, &unused);
    prefetch->n = 0;
    return view_fill(view);
}

void prefetch_deinit(struct prefetch *prefetch)
{
    free(prefetch->items);
    *prefetch = (struct prefetch){0};
}

const uint8_t *prefetch_read(struct view *view, uint64_t addr, uint32_t len)
{
    uint64_t offset = addr & (PREFETCH_PAGE - 1);

    if (addr <= INT64_MAX && len <= PREFETCH_PAGE - offset) {
        const uint8_t *page = view_read(view, addr - offset, PREFETCH_PAGE);
        if (page)
            return page + offset;
    }
    return view_read(view, addr, len);
}
