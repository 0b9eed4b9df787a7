/* A synthetic target: memory with the builtin types of one Python version laid out in it, and
 * room for objects. For unit tests of what decodes objects, and for its fuzzers. */
#pragma once

#include "fs/remote/objects/object.h"

#include <stdlib.h>
#include <string.h>

#define IMAGE_BASE 0x100000ull
#define IMAGE_SIZE (256u << 10)

struct image {
    uint8_t data[IMAGE_SIZE];
    size_t used;
    struct offsets offsets;
    struct memory_image memory_image;
    struct memory memory;
    uint64_t object_type; /* of the type "object" */
    uint64_t types[32];   /* of image_type_names */
};

static const struct {
    const char *name;
    uint64_t flags;
} image_types[] = {
    {"type", TPFLAGS_TYPE_SUBCLASS},
    {"object", 0},
    {"tuple", TPFLAGS_TUPLE_SUBCLASS},
    {"str", TPFLAGS_UNICODE_SUBCLASS},
    {"int", TPFLAGS_LONG_SUBCLASS},
    {"bool", TPFLAGS_LONG_SUBCLASS},
    {"float", 0},
    {"complex", 0},
    {"bytes", TPFLAGS_BYTES_SUBCLASS},
    {"bytearray", 0},
    {"list", TPFLAGS_LIST_SUBCLASS},
    {"dict", TPFLAGS_DICT_SUBCLASS},
    {"set", 0},
    {"frozenset", 0},
    {"NoneType", 0},
    {"function", 0},
    {"method", 0},
    {"builtin_function_or_method", 0},
    {"module", 0},
    {"code", 0},
    {"cell", 0},
    {"generator", 0},
    {"range", 0},
    {"slice", 0},
    {"mappingproxy", 0},
    {"ValueError", TPFLAGS_BASE_EXC_SUBCLASS},
};
#define IMAGE_TYPES (sizeof image_types / sizeof *image_types)

static inline uint64_t image_alloc(struct image *image, size_t size)
{
    size_t at = (image->used + 15) & ~(size_t)15;
    if (at + size > IMAGE_SIZE)
        abort();
    image->used = at + size;
    return IMAGE_BASE + at;
}

static inline void image_put(struct image *image, uint64_t addr, int64_t offset, const void *bytes,
                             size_t size)
{
    uint64_t at = addr + (uint64_t)offset - IMAGE_BASE;
    if (at > IMAGE_SIZE || size > IMAGE_SIZE - at)
        abort();
    if (size)
        memcpy(image->data + at, bytes, size);
}

static inline void image_put64(struct image *image, uint64_t addr, int64_t offset, uint64_t value)
{
    image_put(image, addr, offset, &value, 8);
}

static inline void image_put8(struct image *image, uint64_t addr, int64_t offset, uint8_t value)
{
    image_put(image, addr, offset, &value, 1);
}

static inline uint64_t image_cstring(struct image *image, const char *s)
{
    uint64_t addr = image_alloc(image, strlen(s) + 64); /* readers copy a few bytes more */
    image_put(image, addr, 0, s, strlen(s) + 1);
    return addr;
}

static inline uint64_t image_type(const struct image *image, const char *name)
{
    for (size_t i = 0; i < IMAGE_TYPES; i++)
        if (!strcmp(image_types[i].name, name))
            return image->types[i];
    abort();
}

/* An object with its type set; a bit larger than asked for, since heads are copied as 64 bytes. */
static inline uint64_t image_object(struct image *image, uint64_t type, size_t size)
{
    uint64_t addr = image_alloc(image, size + 64);
    image_put64(image, addr, 0, 1);
    image_put64(image, addr, image->offsets.object_type, type);
    return addr;
}

static inline uint64_t image_tuple(struct image *image, const uint64_t *items, size_t n)
{
    int32_t at = image->offsets.tuple_items;
    uint64_t tuple = image_object(image, image_type(image, "tuple"), (size_t)at + 8 * n);
    image_put64(image, tuple, image->offsets.object_size, n);
    for (size_t i = 0; i < n; i++)
        image_put64(image, tuple, at + 8 * (int64_t)i, items[i]);
    return tuple;
}

static inline uint64_t image_str(struct image *image, const char *ascii)
{
    const struct offsets *o = &image->offsets;
    size_t n = strlen(ascii);
    uint64_t type = image_type(image, "str");
    uint64_t str = image_object(image, type, (size_t)o->unicode_ascii_size + n + 1);
    image_put64(image, str, o->unicode_length, n);
    const uint32_t state = 1u << o->unicode_kind_bit | 1u << o->unicode_compact_bit |
                           1u << o->unicode_ascii_bit;
    image_put(image, str, o->unicode_state, &state, sizeof state);
    image_put(image, str, o->unicode_ascii_size, ascii, n + 1);
    return str;
}

/* n digits of 30 bits */
static inline uint64_t image_int(struct image *image, const uint32_t *limbs, size_t n,
                                 bool negative)
{
    const struct offsets *o = &image->offsets;
    uint64_t type = image_type(image, "int");
    uint64_t object = image_object(image, type, (size_t)o->long_digits + 4 * n);
    if (o->long_tag < 0)
        image_put64(image, object, image->offsets.object_size, negative ? -n : n);
    else
        image_put64(image, object, o->long_tag, n << 3 | (n ? negative ? 2 : 0 : 1));
    image_put(image, object, o->long_digits, limbs, 4 * n);
    return object;
}

/* A class as `class NAME(object)` makes it, in module "m". */
static inline uint64_t image_class(struct image *image, const char *name, uint64_t flags);

static inline void image_init_type(struct image *image, uint64_t type, const char *name,
                                   uint64_t flags)
{
    const struct offsets *o = &image->offsets;
    uint64_t bases[2] = {type, image->object_type};

    image_put64(image, type, image->offsets.object_type, image->types[0]);
    image_put64(image, type, o->type_name, image_cstring(image, name));
    image_put64(image, type, o->type_flags, flags);
    image_put64(image, type, o->type_basicsize, flags & TPFLAGS_TYPE_SUBCLASS ? 1024 : 32);
    image_put64(image, type, o->type_mro,
                image_tuple(image, bases, type == image->object_type ? 1 : 2));
}

static inline void image_init_build(struct image *image, uint32_t version, bool free_threaded)
{
    memset(image, 0, sizeof *image);
    if (!offsets_for_build(version, free_threaded, &image->offsets))
        abort();
    image->memory_image = (struct memory_image){IMAGE_BASE, image->data, IMAGE_SIZE};
    image->memory.image = &image->memory_image;
    for (size_t i = 0; i < IMAGE_TYPES; i++)
        image->types[i] = image_alloc(image, 1024);
    image->object_type = image->types[1];
    for (size_t i = 0; i < IMAGE_TYPES; i++)
        image_init_type(image, image->types[i], image_types[i].name, image_types[i].flags);
}

static inline void image_init(struct image *image, uint32_t version)
{
    image_init_build(image, version, false);
}

/* A table of keys with n entries; general ones have hashes. keys and values may hold 0. */
static inline uint64_t image_keys(struct image *image, const uint64_t *keys, const uint64_t *values,
                                  size_t n, bool general)
{
    const struct offsets *o = &image->offsets;
    bool log2_sizes = o->keys_kind >= 0;
    size_t stride = general || !log2_sizes ? 24 : 16;
    uint64_t table = image_alloc(image, (size_t)o->keys_indices + 64 + stride * n + 64);
    int64_t at = o->keys_indices + 64 + (stride == 24 ? 8 : 0);

    if (log2_sizes) {
        image_put8(image, table, o->keys_log2_size, 6);
        image_put8(image, table, o->keys_log2_index_bytes, 6);
        image_put8(image, table, o->keys_kind, general ? 0 : 1);
    } else {
        image_put64(image, table, o->keys_size, 64);
    }
    image_put64(image, table, o->keys_nentries, n);
    for (size_t i = 0; i < n; i++, at += (int64_t)stride) {
        image_put64(image, table, at, keys[i]);
        image_put64(image, table, at + 8, values ? values[i] : 0);
    }
    return table;
}

static inline uint64_t image_dict(struct image *image, uint64_t keys, uint64_t values, size_t used)
{
    const struct offsets *o = &image->offsets;
    uint64_t dict = image_object(image, image_type(image, "dict"), 64);
    image_put64(image, dict, o->dict_used, used);
    image_put64(image, dict, o->dict_keys, keys);
    image_put64(image, dict, o->dict_values, values);
    return dict;
}

static inline uint64_t image_class(struct image *image, const char *name, uint64_t flags)
{
    uint64_t type = image_alloc(image, 2048);
    uint64_t key = image_str(image, "__module__"), module = image_str(image, "m");
    uint64_t dict = image_dict(image, image_keys(image, &key, &module, 1, false), 0, 1);

    image_init_type(image, type, name, flags | TPFLAGS_HEAPTYPE);
    image_put64(image, type, image->offsets.type_dict, dict);
    image_put64(image, type, image->offsets.heaptype_qualname, image_str(image, name));
    return type;
}
