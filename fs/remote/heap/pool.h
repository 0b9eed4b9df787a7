/* A pool of CPython's allocator for small objects: blocks of one size side by side, behind a
 * header. Source: Objects/obmalloc.c, Include/internal/pycore_obmalloc.h: struct pool_header,
 * the same from 3.8 to 3.15. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define POOL_MAX 16384u /* bytes of a pool from 3.10 on ... */
#define POOL_OLD 4096u  /* ... and before; each lies at a multiple of its size */
#define POOL_HEADER 48u /* where its first block is */
#define POOL_UNIT 16u   /* sizes of blocks are multiples of it, up to ... */
#define POOL_BLOCK 512u /* ... this; what is larger malloc() gives */

struct pool {
    const uint8_t *data; /* a copy of it, the caller's */
    uint32_t block;      /* bytes of one block */
    uint32_t end;        /* behind the last block that was ever in use */
    uint32_t used;       /* blocks in use, as its header says */
    uint32_t free;       /* blocks before `end` that are not */
    bool torn;           /* these don't add up: it was copied while it changed */
    uint64_t is_free[POOL_MAX / POOL_UNIT / 64];
};

/* Bytes of a pool of this version (PY_VERSION_HEX). */
static inline uint32_t pool_size(uint32_t version)
{
    return version < 0x030a0000 ? POOL_OLD : POOL_MAX;
}

/* Whether the header at addr, POOL_HEADER bytes, is that of a pool of `size` bytes with a block in
 * use: no other memory looks like one. */
bool pool_begins(const uint8_t *header, uint32_t size, uint64_t addr);
/* Bytes of a block of a pool whose header that is. */
uint32_t pool_block(const uint8_t *header);
/* Whether the copy of `size` bytes at addr is a pool with a block in use, and which are. */
bool pool_parse(const uint8_t *data, uint32_t size, uint64_t addr, struct pool *out);

/* The first block in use at or behind the offset, as an offset; pool->end: there is none. */
uint32_t pool_next(const struct pool *pool, uint32_t offset);
