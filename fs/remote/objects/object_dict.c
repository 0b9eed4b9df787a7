/* dict: Objects/dictobject.c, Include/internal/pycore_dict.h. Entries stand in the order of
 * insertion behind an index table that is not needed for walking. A split table has its keys in
 * the class and its values in the instance; they have their own order from 3.11 on. */
#include "fs/remote/objects/object_dict.h"

#include "fs/remote/objects/object.h"

#include <errno.h>
#include <string.h>

#define CHUNK_MAX 1024u       /* entries copied at once */
#define LOG2_SIZE_MAX 40      /* of an index table */
#define SPLIT_VALUES_MAX 256u /* insertion order has a byte for each */

#define KEYS_GENERAL 0 /* dk_kind; the others have entries without a hash */

struct entries {
    uint64_t addr;
    uint32_t stride, key; /* bytes; the value is behind the key */
    uint64_t n;
};

static bool read_byte(struct view *view, uint64_t addr, uint8_t *out)
{
    const uint8_t *p = view_read(view, addr, 1);
    if (p)
        *out = *p;
    return p;
}

static bool read_entries(struct view *view, const struct offsets *o, uint64_t keys,
                         struct entries *out)
{
    uint64_t n, size;
    uint8_t log2_size, log2_bytes, kind;

    if (!keys || keys & 7 || o->keys_indices < 0 ||
        !view_read(view, keys, (uint32_t)o->keys_indices) || /* the fields below in one go */
        !object_field(view, keys, o->keys_nentries, &n))
        return false;
    if (o->keys_kind >= 0) {
        if (o->keys_log2_size < 0 || o->keys_log2_index_bytes < 0 ||
            !read_byte(view, keys + (uint32_t)o->keys_log2_size, &log2_size) ||
            !read_byte(view, keys + (uint32_t)o->keys_log2_index_bytes, &log2_bytes) ||
            !read_byte(view, keys + (uint32_t)o->keys_kind, &kind) || log2_size > LOG2_SIZE_MAX ||
            log2_bytes > LOG2_SIZE_MAX + 3 || n > 1ull << log2_size)
            return false;
        out->addr = keys + (uint32_t)o->keys_indices + (1ull << log2_bytes);
        out->stride = kind == KEYS_GENERAL ? 24 : 16;
        out->key = kind == KEYS_GENERAL ? 8 : 0;
    } else {
        if (!object_field(view, keys, o->keys_size, &size) || size > 1ull << LOG2_SIZE_MAX ||
            n > size)
            return false;
        unsigned index = size <= 0xff ? 1 : size <= 0xffff ? 2 : size <= 0xffffffff ? 4 : 8;
        out->addr = keys + (uint32_t)o->keys_indices + size * index;
        out->stride = 24;
        out->key = 8;
    }
    out->n = n;
    return true;
}

static int combined_iterate(struct view *view, const struct entries *entries, entry_visit *visit,
                            void *arg)
{
    uint64_t n = entries->n < ENTRIES_MAX ? entries->n : ENTRIES_MAX;

    for (uint64_t i = 0, chunk = 32; i < n; i += chunk) {
        if (i)
            chunk = CHUNK_MAX;
        if (chunk > n - i)
            chunk = n - i;
        const uint8_t *p =
            view_read(view, entries->addr + i * entries->stride, (uint32_t)chunk * entries->stride);
        if (!p)
            return -EFAULT;
        for (uint64_t k = 0; k < chunk; k++, p += entries->stride) {
            uint64_t key = load64(p + entries->key), value = load64(p + entries->key + 8);
            int r = key && value ? visit(arg, key, value) : 0;
            if (r)
                return r;
        }
    }
    return n < entries->n ? -E2BIG : 0;
}

/* Which values are set, in the order they were: bytes before the values (3.11, 3.12: number used
 * at -2, order downwards from -3) or behind the room for them (3.13 on: capacity and number used
 * at the start). */
static bool read_order(struct view *view, const struct offsets *o, uint64_t values, uint8_t *order,
                       unsigned *n)
{
    uint8_t used, capacity;
    const uint8_t *p;

    if (o->version >= 0x030d0000) {
        if (!read_byte(view, values, &capacity) || !read_byte(view, values + 1, &used) ||
            used > capacity ||
            !(p = view_read(view, values + (uint32_t)o->dictvalues_items + 8ull * capacity,
                            used ? used : 1)))
            return false;
        memcpy(order, p, used);
    } else {
        if (!read_byte(view, values - 2, &used) ||
            !(p = view_read(view, values - 2 - used, used ? used : 1)))
            return false;
        for (unsigned i = 0; i < used; i++)
            order[i] = p[used - 1 - i];
    }
    *n = used;
    return true;
}

int split_iterate(struct view *view, const struct offsets *o, uint64_t keys, uint64_t values,
                  entry_visit *visit, void *arg)
{
    struct entries entries;
    uint8_t order[SPLIT_VALUES_MAX];
    unsigned n = 0;
    bool ordered = o->version >= 0x030b0000;
    uint64_t items = values + (o->dictvalues_items > 0 ? (uint32_t)o->dictvalues_items : 0);

    if (!read_entries(view, o, keys, &entries))
        return -EFAULT;
    if (ordered) {
        if (!read_order(view, o, values, order, &n))
            return -EFAULT;
    } else {
        n = entries.n < SPLIT_VALUES_MAX ? (unsigned)entries.n : SPLIT_VALUES_MAX;
    }
    for (unsigned i = 0; i < n; i++) {
        unsigned index = ordered ? order[i] : i;
        uint64_t key, value;
        if (index >= entries.n)
            return -EFAULT;
        if (!view_read64(view, entries.addr + (uint64_t)index * entries.stride + entries.key,
                         &key) ||
            !view_read64(view, items + 8ull * index, &value))
            return -EFAULT;
        int r = key && value ? visit(arg, key, value) : 0;
        if (r)
            return r;
    }
    return !ordered && n < entries.n ? -E2BIG : 0;
}

struct table {
    uint64_t used, keys, values; /* values 0: it isn't split */
};

static int read_table(struct view *view, const struct offsets *o, uint64_t dict, struct table *out)
{
    struct object_class class;

    int r = object_classify(view, o, dict, &class);
    if (r < 0)
        return r;
    if (class.kind != OBJECT_DICT && class.kind != OBJECT_FROZENDICT)
        return -EINVAL;
    if (!object_field(view, dict, o->dict_used, &out->used) ||
        !object_field(view, dict, o->dict_keys, &out->keys) ||
        !object_field(view, dict, o->dict_values, &out->values))
        return -EFAULT;
    return 0;
}

int dict_iterate(struct view *view, const struct offsets *o, uint64_t dict, entry_visit *visit,
                 void *arg, uint64_t *size)
{
    struct entries entries;
    struct table table;

    int r = read_table(view, o, dict, &table);
    if (r < 0)
        return r;
    if (size)
        *size = table.used;
    if (!table.used)
        return 0;
    if (table.values)
        return split_iterate(view, o, table.keys, table.values, visit, arg);
    if (!read_entries(view, o, table.keys, &entries))
        return -EFAULT;
    return combined_iterate(view, &entries, visit, arg);
}

#define LOOKUP_BATCH 64

struct lookup {
    struct view *view;
    const struct offsets *offsets;
    const char *name;
    uint64_t keys[LOOKUP_BATCH], values[LOOKUP_BATCH];
    unsigned n;
    uint64_t key, found;
};

/* Compares a batch of keys: their heads arrive in one copy. */
static int lookup_batch(struct lookup *lookup)
{
    objects_prefetch(lookup->view, lookup->offsets, lookup->keys, lookup->n);
    for (unsigned i = 0; i < lookup->n; i++)
        if (str_equals(lookup->view, lookup->offsets, lookup->keys[i], lookup->name)) {
            lookup->key = lookup->keys[i];
            lookup->found = lookup->values[i];
            return 1;
        }
    lookup->n = 0;
    return 0;
}

static int lookup_entry(void *arg, uint64_t key, uint64_t value)
{
    struct lookup *lookup = arg;

    lookup->keys[lookup->n] = key;
    lookup->values[lookup->n++] = value;
    return lookup->n == LOOKUP_BATCH ? lookup_batch(lookup) : 0;
}

static int lookup_run(struct lookup *lookup, uint64_t dict)
{
    int r = dict_iterate(lookup->view, lookup->offsets, dict, lookup_entry, lookup, NULL);
    if (r == 0)
        r = lookup_batch(lookup);
    return r < 0 ? r : r == 0 ? -ENOENT : 0;
}

int dict_lookup_str(struct view *view, const struct offsets *offsets, uint64_t dict,
                    const char *key, uint64_t *value)
{
    struct lookup lookup = {.view = view, .offsets = offsets, .name = key};

    int r = lookup_run(&lookup, dict);
    if (r == 0)
        *value = lookup.found;
    return r;
}

static bool entry_at(struct view *view, const struct entries *entries, uint64_t at, uint64_t *key,
                     uint64_t *value)
{
    const uint8_t *p = at < entries->n
                           ? view_read(view, entries->addr + at * entries->stride, entries->stride)
                           : NULL;
    if (!p)
        return false;
    *key = load64(p + entries->key);
    *value = load64(p + entries->key + 8);
    return *key && *value;
}

int dict_lookup_again(struct view *view, const struct offsets *offsets, uint64_t dict,
                      const char *name, uint64_t *at, uint64_t *value)
{
    struct lookup lookup = {.view = view, .offsets = offsets, .name = name};
    struct entries entries = {0};
    struct table table;
    uint64_t key, found;

    int r = read_table(view, offsets, dict, &table);
    if (r < 0)
        return r;
    bool is_split = table.values || !read_entries(view, offsets, table.keys, &entries);
    if (!is_split && entry_at(view, &entries, *at, &key, &found) &&
        str_equals(view, offsets, key, name)) {
        *value = found;
        return 0;
    }
    r = lookup_run(&lookup, dict);
    if (r < 0)
        return r;
    for (uint64_t i = 0; !is_split && i < entries.n && i < ENTRIES_MAX; i++)
        if (entry_at(view, &entries, i, &key, &found) && key == lookup.key) {
            *at = i;
            break;
        }
    *value = lookup.found;
    return 0;
}
