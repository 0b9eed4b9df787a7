#include "fs/remote/heap/referrers.h"

#include "agent/base/cleanup.h"
#include "agent/base/load.h"
#include "fs/base/array.h"
#include "fs/remote/heap/pool.h"
#include "fs/remote/objects/object.h"

#include <errno.h>
#include <string.h>

#define TABLE_MAX (1ull << 34)   /* bytes of one that is believed */
#define DEQUE_BLOCKS_MAX 100000u /* of a deque */
/* Modules/_collectionsmodule.c: leftlink, 64 items, rightlink; dequeobject.leftblock */
#define DEQUE_BLOCK (8 * (64 + 2))
#define DEQUE_LEFT 24

/* ---- addresses ---- */

static uint64_t *slot(uint64_t *slots, size_t room, uint64_t address)
{
    size_t i = (size_t)(address * 0x9e3779b97f4a7c15ull >> 32) & (room - 1);

    while (slots[i] && slots[i] != address)
        i = (i + 1) & (room - 1);
    return &slots[i];
}

static size_t bit_of(uint64_t address) { return address >> 4 & (ADDRESS_BITS - 1); }

static int addresses_add(struct addresses *of, uint64_t address)
{
    if (!of->seen)
        of->seen = calloc(ADDRESS_BITS / 8, 1);
    if (!of->seen)
        return -ENOMEM;
    of->seen[bit_of(address) / 8] |= (uint8_t)(1u << bit_of(address) % 8);
    if (of->n * 2 >= of->room) {
        size_t room = of->room ? of->room * 2 : 64;
        uint64_t *slots = calloc(room, sizeof *slots);
        if (!slots)
            return -ENOMEM;
        for (size_t i = 0; i < of->room; i++)
            if (of->slots[i])
                *slot(slots, room, of->slots[i]) = of->slots[i];
        free(of->slots);
        of->slots = slots;
        of->room = room;
    }
    uint64_t *at = slot(of->slots, of->room, address);
    of->n += !*at;
    *at = address;
    if (of->n == 1 || address < of->low)
        of->low = address;
    if (address > of->high)
        of->high = address;
    return 0;
}

static bool addresses_have(const struct addresses *of, uint64_t address)
{
    return of->n && address >= of->low && address <= of->high &&
           of->seen[bit_of(address) / 8] >> bit_of(address) % 8 & 1 &&
           *slot(of->slots, of->room, address);
}

bool referrers_wanted(const struct referrers *referrers, uint64_t object)
{
    return addresses_have(&referrers->of, object);
}

int referrers_want(struct referrers *referrers, uint64_t object)
{
    return object ? addresses_add(&referrers->of, object) : 0;
}

/* ---- what is found, in passes over the memory ---- */

/* A stretch of memory with references in it: a word at first, a whole block later. Ascending. */
struct stretch {
    uint64_t start, end;
    uint64_t count; /* of references; 0: who they are is known */
};

struct stretches {
    struct stretch *items;
    size_t n, alloc;
};

struct finding {
    struct referrers *referrers;
    const struct offsets *offsets;
    struct stretches words;  /* each that is an address which is looked for */
    struct stretches tables; /* blocks that are no objects, with such words in them */
    uint8_t *kinds;          /* KIND_ of each of block_types.items */
    size_t nkinds;
    const char *type; /* whose objects are collected; NULL: none are */
};

enum { KIND_UNKNOWN, KIND_OTHER, KIND_WANTED, KIND_LIST, KIND_DICT, KIND_SET, KIND_DEQUE };

static int stretch_add(struct stretches *all, uint64_t start, uint64_t size, uint64_t count)
{
    struct stretch *last = all->n ? &all->items[all->n - 1] : NULL;

    if (last && last->start == start && last->end == start + size) {
        last->count += count;
        return 0;
    }
    if (ARRAY_GROW(all->items, all->alloc, all->n + 1) < 0)
        return -ENOMEM;
    all->items[all->n++] = (struct stretch){start, start + size, count};
    return 0;
}

/* The first that ends behind the address; n: none. */
static size_t stretch_find(const struct stretches *all, uint64_t address)
{
    return LOWER_BOUND(all->n, i, all->items[i].end <= address);
}

/* Takes the references out of [start, end). How many there were. */
static uint64_t stretch_take(struct stretches *all, uint64_t start, uint64_t end)
{
    uint64_t count = 0;

    for (size_t i = stretch_find(all, start); i < all->n && all->items[i].start < end; i++) {
        count += all->items[i].count;
        all->items[i].count = 0;
    }
    return count;
}

static int find_words(void *arg, const uint8_t *data, size_t size, uint64_t addr)
{
    struct finding *finding = arg;
    const struct addresses *of = &finding->referrers->of;

    for (size_t at = 0; at + 8 <= size; at += 8) {
        uint64_t word = load64(data + at);
        if (word < of->low || word > of->high || !addresses_have(of, word))
            continue;
        if (finding->words.n == REFERENCES_MAX) {
            finding->referrers->cut = true;
            return 1;
        }
        if (stretch_add(&finding->words, addr + at, 8, 1) < 0)
            return -ENOMEM;
    }
    return 0;
}

/* Calls each() for the pools of a piece. */
static int each_pool(struct finding *finding, const uint8_t *data, size_t size, uint64_t addr,
                     int (*each)(struct finding *finding, const struct pool *pool, uint64_t addr))
{
    uint32_t step = pool_size(finding->offsets->version);
    uint64_t at = (addr + step - 1) & ~(uint64_t)(step - 1);
    struct pool pool;
    int r = 0;

    for (; r == 0 && at + step <= addr + size; at += step)
        if (pool_parse(data + (at - addr), step, at, &pool))
            r = each(finding, &pool, at);
    return r;
}

static int add_referrer(struct finding *finding, uint64_t object, uint32_t type, uint64_t count)
{
    struct referrers *referrers = finding->referrers;
    struct referrer *last = referrers->n ? &referrers->items[referrers->n - 1] : NULL;

    if (!count)
        return 0;
    if (last && last->object == object) {
        last->count += count;
        return 0;
    }
    if (ARRAY_GROW(referrers->items, referrers->alloc, referrers->n + 1) < 0)
        return -ENOMEM;
    referrers->items[referrers->n++] = (struct referrer){object, type, count};
    return 0;
}

/* Sorts the blocks that have such words: some are objects, others are tables of objects. */
static int place_words_in(struct finding *finding, const struct pool *pool, uint64_t addr)
{
    uint64_t end = addr + pool_size(finding->offsets->version);
    int r = 0;

    for (size_t i = stretch_find(&finding->words, addr);
         r == 0 && i < finding->words.n && finding->words.items[i].start < end; i++) {
        uint64_t offset = finding->words.items[i].start - addr;
        struct block_object object;
        if (offset < POOL_HEADER)
            continue;
        uint32_t block = (uint32_t)(offset - offset % 8);
        block -= (block - POOL_HEADER) % pool->block;
        finding->words.items[i].count = 0;
        if (block >= pool->end || pool_next(pool, block) != block)
            continue; /* it was given back */
        if (!block_object(&finding->referrers->types, pool->data + block, pool->block, &object))
            r = stretch_add(&finding->tables, addr + block, pool->block, 1);
        else if (offset != block + object.offset + (uint32_t)finding->offsets->object_type)
            r = add_referrer(finding, addr + block + object.offset, object.type, 1);
    }
    return r;
}

static int place_words(void *arg, const uint8_t *data, size_t size, uint64_t addr)
{
    return each_pool(arg, data, size, addr, place_words_in);
}

/* What is known of a type's objects. */
static int kind_of(struct finding *finding, uint32_t type)
{
    struct block_types *types = &finding->referrers->types;

    if (ARRAY_GROW(finding->kinds, finding->nkinds, type + 1) < 0)
        return -ENOMEM;
    if (finding->kinds[type] != KIND_UNKNOWN)
        return finding->kinds[type];
    _cleanup_free_ char *name = block_type_name(types, type);
    uint64_t flags = types->items[type].flags;
    int kind = KIND_OTHER;
    if (!name)
        return -ENOMEM;
    if (finding->type)
        kind = !strcmp(name, finding->type) ? KIND_WANTED : KIND_OTHER;
    else if (flags & TPFLAGS_LIST_SUBCLASS)
        kind = KIND_LIST;
    else if (flags & TPFLAGS_DICT_SUBCLASS)
        kind = KIND_DICT;
    else if (!strcmp(name, "set") || !strcmp(name, "frozenset"))
        kind = KIND_SET;
    else if (!strcmp(name, "collections.deque"))
        kind = KIND_DEQUE;
    finding->kinds[type] = (uint8_t)kind;
    return kind;
}

static uint64_t field(const uint8_t *object, const uint8_t *end, int32_t offset)
{
    return offset >= 0 && object + offset + 8 <= end ? load64(object + offset) : 0;
}

/* Takes what stands in [start, start + size), which malloc() gave. */
static uint64_t take_range(struct finding *finding, uint64_t start, uint64_t size)
{
    return start && size < TABLE_MAX ? stretch_take(&finding->words, start, start + size) : 0;
}

/* Whether anything that is left stands at or behind it, so that its size is worth asking for. */
static bool is_before_any(const struct finding *finding, uint64_t start)
{
    size_t i = stretch_find(&finding->words, start);

    return start && i < finding->words.n && finding->words.items[i].start - start < TABLE_MAX;
}

/* Include/internal/pycore_dict.h struct _dictkeysobject: the indices, then entries of a hash, a key
 * and a value, or of the latter two. */
static uint64_t keys_size(struct finding *finding, uint64_t keys)
{
    const struct offsets *o = finding->offsets;
    uint8_t head[64] = {0};

    if (memory_read(&finding->referrers->target->memory, keys, head, sizeof head) < 0 ||
        o->keys_indices < 0)
        return 0;
    uint64_t size, indices, entry = 24;
    if (o->keys_log2_size >= 0 && o->keys_log2_index_bytes >= 0) {
        if (head[o->keys_log2_size] > 40 || head[o->keys_log2_index_bytes] > 43)
            return 0;
        size = 1ull << head[o->keys_log2_size];
        indices = 1ull << head[o->keys_log2_index_bytes];
        entry = o->keys_kind >= 0 && head[o->keys_kind] ? 16 : 24;
    } else {
        size = o->keys_size >= 0 ? load64(head + o->keys_size) : 0;
        indices = size * (size <= 0xff ? 1 : size <= 0xffff ? 2 : size <= 0xffffffff ? 4 : 8);
    }
    return size < TABLE_MAX ? (uint64_t)o->keys_indices + indices + size * 2 / 3 * entry : 0;
}

static uint64_t take_deque(struct finding *finding, uint64_t block)
{
    uint8_t copy[DEQUE_BLOCK];
    uint64_t count = 0;

    for (unsigned i = 0; block && i < DEQUE_BLOCKS_MAX; i++) {
        if (memory_read(&finding->referrers->target->memory, block, copy, sizeof copy) < 0)
            break;
        count += take_range(finding, block, sizeof copy);
        block = load64(copy + sizeof copy - 8);
    }
    return count;
}

static uint64_t take_tables_of(struct finding *finding, const uint8_t *object, const uint8_t *end,
                               int kind)
{
    const struct offsets *o = finding->offsets;
    uint64_t at;

    switch (kind) {
    case KIND_LIST:
        return take_range(finding, field(object, end, o->list_items),
                          8 * field(object, end, o->object_size));
    case KIND_DICT:
        at = field(object, end, o->dict_used) ? field(object, end, o->dict_keys) : 0;
        return is_before_any(finding, at) ? take_range(finding, at, keys_size(finding, at)) : 0;
    case KIND_SET:
        return take_range(finding, field(object, end, o->set_table),
                          16 * (field(object, end, o->set_mask) + 1));
    case KIND_DEQUE: return take_deque(finding, field(object, end, DEQUE_LEFT));
    default: return 0;
    }
}

static int own_tables_in(struct finding *finding, const struct pool *pool, uint64_t addr)
{
    const struct stretches *tables = &finding->tables;

    for (uint32_t at = pool_next(pool, POOL_HEADER); at < pool->end;
         at = pool_next(pool, at + pool->block)) {
        const uint8_t *block = pool->data + at;
        struct block_object object;
        uint64_t count = 0;
        if (!block_object(&finding->referrers->types, block, pool->block, &object))
            continue;
        for (uint32_t i = 0; finding->tables.n && i + 8 <= pool->block; i += 8) {
            uint64_t word = load64(block + i);
            if (word < tables->items[0].start || word >= tables->items[tables->n - 1].end)
                continue;
            size_t table = stretch_find(tables, word);
            if (table < finding->tables.n && word >= finding->tables.items[table].start) {
                count += finding->tables.items[table].count;
                finding->tables.items[table].count = 0;
            }
        }
        int kind = finding->words.n ? kind_of(finding, object.type) : KIND_OTHER;
        if (kind < 0)
            return kind;
        count += take_tables_of(finding, block + object.offset, block + pool->block, kind);
        int r = add_referrer(finding, addr + at + object.offset, object.type, count);
        if (r < 0)
            return r;
    }
    return 0;
}

static int own_tables(void *arg, const uint8_t *data, size_t size, uint64_t addr)
{
    return each_pool(arg, data, size, addr, own_tables_in);
}

static int collect_in(struct finding *finding, const struct pool *pool, uint64_t addr)
{
    for (uint32_t at = pool_next(pool, POOL_HEADER); at < pool->end;
         at = pool_next(pool, at + pool->block)) {
        struct block_object object;
        if (!block_object(&finding->referrers->types, pool->data + at, pool->block, &object))
            continue;
        int kind = kind_of(finding, object.type);
        if (kind < 0)
            return kind;
        if (kind != KIND_WANTED)
            continue;
        if (finding->referrers->of.n == REFERENTS_MAX) {
            finding->referrers->cut = true;
            return 1;
        }
        if (referrers_want(finding->referrers, addr + at + object.offset) < 0)
            return -ENOMEM;
    }
    return 0;
}

static int collect(void *arg, const uint8_t *data, size_t size, uint64_t addr)
{
    return each_pool(arg, data, size, addr, collect_in);
}

/* ---- the whole ---- */

static int run(struct finding *finding, bool pools, scan_visit *visit)
{
    struct referrers *referrers = finding->referrers;
    struct scan scan = {
        .target = referrers->target,
        .unwanted = referrers->unwanted,
        .unwanted_arg = referrers->unwanted_arg,
        .libraries = !pools,
        .begins = pools ? pool_begins : NULL,
        .step = pool_size(finding->offsets->version),
    };

    int r = scan_run(&scan, visit, finding);
    referrers->ns += scan.ns;
    referrers->cut |= scan.cut;
    scan_deinit(&scan);
    return r < 0 ? r : 0;
}

static void finding_init(struct finding *finding, struct referrers *referrers)
{
    *finding = (struct finding){
        .referrers = referrers,
        .offsets = &referrers->target->runtime.offsets,
    };
}

static void finding_deinit(struct finding *finding)
{
    free(finding->words.items);
    free(finding->tables.items);
    free(finding->kinds);
}

static int by_object(const void *a, const void *b)
{
    const struct referrer *x = a, *y = b;

    return x->object < y->object ? -1 : x->object > y->object;
}

static int by_count(const void *a, const void *b)
{
    const struct referrer *x = a, *y = b;

    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return by_object(a, b);
}

static uint64_t left(struct stretches *all)
{
    size_t n = 0;
    uint64_t count = 0;

    for (size_t i = 0; i < all->n; i++)
        if (all->items[i].count) {
            count += all->items[i].count;
            all->items[n++] = all->items[i];
        }
    all->n = n;
    return count;
}

static void merge(struct referrers *referrers)
{
    size_t n = 0;

    if (!referrers->n)
        return;
    array_sort(referrers->items, referrers->n, sizeof *referrers->items, by_object);
    for (size_t i = 1; i < referrers->n; i++) {
        if (referrers->items[i].object == referrers->items[n].object)
            referrers->items[n].count += referrers->items[i].count;
        else
            referrers->items[++n] = referrers->items[i];
    }
    referrers->n = n + 1;
    array_sort(referrers->items, referrers->n, sizeof *referrers->items, by_count);
}

int referrers_find(struct referrers *referrers)
{
    _cleanup_(finding_deinit) struct finding finding;

    finding_init(&finding, referrers);
    int r = run(&finding, false, find_words);
    if (r == 0 && finding.words.n)
        r = run(&finding, true, place_words);
    if (r == 0 && left(&finding.words) + left(&finding.tables))
        r = run(&finding, true, own_tables);
    if (r < 0)
        return r;
    referrers->elsewhere = left(&finding.words) + left(&finding.tables);
    merge(referrers);
    return 0;
}

int referrers_want_type(struct referrers *referrers, const char *name)
{
    _cleanup_(finding_deinit) struct finding finding;

    finding_init(&finding, referrers);
    finding.type = name;
    int r = run(&finding, true, collect);
    return r < 0 ? r : referrers->of.n ? 0 : -ENOENT;
}

int referrers_init(struct referrers *referrers, struct target *target)
{
    referrers->target = target;
    return block_types_init(&referrers->types, target);
}

void referrers_clear(struct referrers *referrers)
{
    free(referrers->of.slots);
    free(referrers->of.seen);
    free(referrers->items);
    referrers->of = (struct addresses){0};
    referrers->items = NULL;
    referrers->n = referrers->alloc = 0;
    referrers->elsewhere = 0;
}

void referrers_deinit(struct referrers *referrers)
{
    referrers_clear(referrers);
    block_types_deinit(&referrers->types);
}
