/* Whether a block of a pool is an object, and of which type.
 *
 * An object stands in its block behind the words of the garbage collector, and of its dictionary
 * and weak references (Include/internal/pycore_object.h, _PyType_PreHeaderSize()), if its type has
 * these; behind 16 bytes more under PYTHONMALLOC=debug. What counts as a type is verified: its own
 * type makes types, and that of this one in turn. */
#pragma once

#include "fs/remote/moment/target.h"

struct block_types {
    struct memory memory;
    const struct offsets *offsets;
    struct view *view;
    struct block_type {
        uint64_t addr;
        uint64_t flags;  /* tp_flags */
        uint32_t before; /* bytes of words before an object of it */
    } * items;
    size_t n, alloc;
    struct block_word { /* words that were taken for the address of a type, hashed */
        uint64_t addr;
        uint32_t type; /* its index in items; UINT32_MAX: it is none */
    } * words;
    size_t nwords, room; /* a power of two */
};

/* -ENOMEM. target must outlive it. */
int block_types_init(struct block_types *types, struct target *target);
void block_types_deinit(struct block_types *types);

struct block_object {
    uint32_t type;   /* of block_types.items */
    uint32_t offset; /* of the object in its block */
};

/* Whether the copy of a block in use is an object. */
bool block_object(struct block_types *types, const uint8_t *block, uint32_t size,
                  struct block_object *out);
/* The type's name, on the heap; "?" if it can't be read any more. NULL: no memory. */
char *block_type_name(struct block_types *types, uint32_t type);
