#include "fs/remote/heap/census.h"

#include "agent/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/remote/heap/block.h"
#include "fs/remote/heap/pool.h"

#include <errno.h>
#include <string.h>

#define READS_MAX 8 /* of a pool that changes */

struct counting {
    struct census *census;
    struct target *target;
    struct block_types types;
    struct type_count {
        uint64_t count, bytes;
    } * counts; /* by the index of a type */
    size_t alloc;
    uint8_t again[POOL_MAX];
};

static int count_blocks(struct counting *counting, const struct pool *pool)
{
    struct census *census = counting->census;

    for (uint32_t at = pool_next(pool, POOL_HEADER); at < pool->end;
         at = pool_next(pool, at + pool->block)) {
        struct block_object object;
        if (!block_object(&counting->types, pool->data + at, pool->block, &object)) {
            census->blocks++;
            census->block_bytes += pool->block;
            continue;
        }
        if (ARRAY_GROW(counting->counts, counting->alloc, object.type + 1) < 0)
            return -ENOMEM;
        counting->counts[object.type].count++;
        counting->counts[object.type].bytes += pool->block;
    }
    census->pools++;
    census->pool_bytes += census->scan.step;
    census->torn += pool->torn;
    return 0;
}

static int count_pools(void *arg, const uint8_t *data, size_t size, uint64_t addr)
{
    struct counting *counting = arg;
    uint32_t step = counting->census->scan.step;
    uint64_t at = (addr + step - 1) & ~(uint64_t)(step - 1);
    int r = 0;

    for (; r == 0 && at + step <= addr + size; at += step) {
        struct pool pool;
        bool is = pool_parse(data + (at - addr), step, at, &pool);
        for (int i = 1; is && pool.torn && i < READS_MAX; i++)
            is = memory_read(&counting->target->memory, at, counting->again, step) == 0 &&
                 pool_parse(counting->again, step, at, &pool);
        if (is)
            r = count_blocks(counting, &pool);
    }
    return r;
}

static int by_name(const void *a, const void *b)
{
    const struct census_type *x = a, *y = b;

    return strcmp(x->name, y->name);
}

static int by_bytes(const void *a, const void *b)
{
    const struct census_type *x = a, *y = b;

    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return strcmp(x->name, y->name);
}

/* Types of the same name become one. */
static void merge(struct census *census)
{
    size_t n = 0;

    array_sort(census->types, census->n, sizeof *census->types, by_name);
    for (size_t i = 0; i < census->n; i++) {
        struct census_type *type = &census->types[i], *last = n ? &census->types[n - 1] : NULL;
        if (last && !strcmp(last->name, type->name)) {
            last->count += type->count;
            last->bytes += type->bytes;
            free(type->name);
        } else {
            census->types[n++] = *type;
        }
    }
    census->n = n;
    array_sort(census->types, census->n, sizeof *census->types, by_bytes);
}

static int name_types(struct counting *counting, struct census *census)
{
    census->types = calloc(counting->types.n + 1, sizeof *census->types);
    if (!census->types)
        return -ENOMEM;
    for (size_t i = 0; i < counting->types.n && i < counting->alloc; i++) {
        const struct type_count *count = &counting->counts[i];
        char *name = count->count ? block_type_name(&counting->types, (uint32_t)i) : NULL;
        if (count->count && !name)
            return -ENOMEM;
        if (!name)
            continue;
        census->types[census->n++] = (struct census_type){name, count->count, count->bytes};
        census->objects += count->count;
        census->object_bytes += count->bytes;
    }
    merge(census);
    return 0;
}

static int count(struct counting *counting, struct census *census)
{
    int r = block_types_init(&counting->types, counting->target);
    if (r == 0)
        r = scan_run(&census->scan, count_pools, counting);
    if (r == 0)
        r = name_types(counting, census);
    block_types_deinit(&counting->types);
    free(counting->counts);
    return r;
}

int census_take(struct target *target, struct census *census, struct text *why)
{
    const struct runtime *runtime = &target->runtime;

    if (!runtime->supported || runtime->free_threaded) {
        text_puts(why, runtime->supported ? "a free-threaded interpreter allocates by mimalloc, "
                                            "which isn't read"
                                          : runtime->why);
        return -EOPNOTSUPP;
    }
    _cleanup_free_ struct counting *counting = calloc(1, sizeof *counting);
    if (!counting)
        return -ENOMEM;
    census->scan.target = target;
    census->scan.begins = pool_begins;
    census->scan.step = pool_size(runtime->offsets.version);
    counting->census = census;
    counting->target = target;
    int r = count(counting, census);
    if (r < 0)
        census_deinit(census);
    return r;
}

void census_deinit(struct census *census)
{
    for (size_t i = 0; i < census->n; i++)
        free(census->types[i].name);
    free(steal_pointer(census->types));
    census->n = 0;
    scan_deinit(&census->scan);
}
