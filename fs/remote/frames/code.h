/* Code objects, cached by address: function's name, file, line table.
 *
 * An entry is valid as long as the code object's own fields read the same: pointers to its
 * strings and tables, first line, and from 3.12 on co_version, which is new for each code object
 * ever made. A freed object whose memory became another one is so told apart. */
#pragma once

#include "agent/cpython/offsets.h"
#include "fs/remote/objects/linetable.h"
#include "fs/remote/memory/memory.h"

#define CODE_CACHE_MAX 65536 /* entries */
#define CODE_CACHE_BYTES_MAX (64u << 20)
#define CODE_NAME_MAX 1024 /* characters of a name or a file name that are kept */

struct code {
    uint64_t addr;
    struct code_key {
        uint64_t type, filename, name, linetable, bytecode;
        uint32_t first_line, version;
    } key;
    enum { CODE_NEW, CODE_LOADED, CODE_UNREADABLE } state;
    char *name; /* qualified from 3.11 on; escaped UTF-8 */
    char *file; /* co_filename; escaped UTF-8 */
    struct linetable lines;
    enum { CODE_PROGRAMS, CODE_AGENTS, CODE_AGENTS_ENTRY } whose; /* by its file: proto.h */
    bool no_handlers;        /* its exception table is empty: set by with_blocks.h, 3.11 on */
    bool no_lock_calls;      /* it speaks of neither acquire nor release: set by lock_calls.h */
    int32_t first_traceable; /* bytes of bytecode before the function proper begins; 3.11 on */
    struct code *next;       /* in its bucket */
};

struct code_cache;

int code_cache_new(struct code_cache **out);
void code_cache_free(struct code_cache *cache);

/* How many bytes from a code object's start code_cache_find() wants. */
uint32_t code_head_size(const struct offsets *offsets);

/* The entry for the code object at addr whose first code_head_size() bytes are `head`. A new or
 * changed one is CODE_NEW until code_cache_load(). NULL: out of memory. */
struct code *code_cache_find(struct code_cache *cache, const struct offsets *offsets, uint64_t addr,
                             const uint8_t *head);

/* Reads names and tables of all CODE_NEW entries, side by side in a few calls; those that can't
 * be read, or changed meanwhile, become CODE_UNREADABLE. 0, -ESRCH, -EPERM, -ENOMEM. */
int code_cache_load(struct code_cache *cache, const struct memory *memory,
                    const struct offsets *offsets);

/* Drops everything if the cache has grown over its limit. No entry may be in use. */
void code_cache_trim(struct code_cache *cache);
void code_cache_clear(struct code_cache *cache);
/* Bytes that it occupies. */
size_t code_cache_size(const struct code_cache *cache);
