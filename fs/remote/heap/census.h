/* What fills the heap of a process: objects by type, counted from outside without an agent.
 *
 * Every pool of CPython's allocator for small objects (pool.h) is found by its header, wherever it
 * lies, and each block in use is either an object, which is told by its reference count and its
 * type, or something else of the interpreter's: a dict's table, a list's items. Objects of more
 * than 512 bytes, and all that libraries allocate, are malloc()'s and not in it.
 *
 * A pool is read at one instant, the heap isn't: a count may be off by what was made and freed
 * while it was read. Of a process that makes and frees nothing it is exact. */
#pragma once

#include "fs/remote/heap/scan.h"

struct census_type {
    char *name; /* as "builtins" have it, else module.Type, escaped; owned */
    uint64_t count, bytes;
};

struct census {
    struct census_type *types; /* by bytes, the largest first; types of one name are one */
    size_t n;
    uint64_t objects, object_bytes;
    uint64_t blocks, block_bytes; /* in use, and no object */
    uint64_t pools, pool_bytes;
    uint64_t torn; /* pools that changed each time they were read */
    struct scan scan;
};

/* Takes it. scan->unwanted may be set in census->scan before. -EOPNOTSUPP, and why says more: a
 * free-threaded interpreter, or a version that isn't known; errors of scan_run(). The caller owns
 * what is in *census. */
int census_take(struct target *target, struct census *census, struct text *why);
void census_deinit(struct census *census);
