/* Going once through the memory where a process has its objects, from outside.
 *
 * Only pages that are in memory are copied: one that was never touched holds nothing, and one that
 * is swapped out would be read back in. A piece of memory is copied in one call, so that it is
 * nearly of one instant; the whole isn't. The process must be one that doesn't hang, or the
 * caller one that may (proc/may_hang.h): a mapping may be of a file. */
#pragma once

#include "fs/remote/moment/target.h"

#define SCAN_PIECE (1u << 20)        /* bytes that are copied at once */
#define SCAN_BYTES_MAX (64ull << 30) /* bytes that are copied in all */
#define SCAN_HEAD 48
#define SCAN_NS 20000000000ull /* for how long at most */

struct scan {
    struct target *target;
    struct maps maps;
    /* whether nobody wants it any more: 0 or -errno. NULL: always wanted */
    int (*unwanted)(const void *arg);
    const void *unwanted_arg;
    bool libraries; /* also what libraries keep in their data, and malloc() in its heap */
    /* whether the `step` bytes at addr, a multiple of that, are to be copied, by the first
     * SCAN_HEAD of them; NULL: all are. What isn't is 0 */
    bool (*begins)(const uint8_t *head, uint32_t step, uint64_t addr);
    uint32_t step; /* a multiple of 4,096 */

    /* what it came to */
    uint64_t total;   /* bytes of the mappings that it goes through ... */
    uint64_t passed;  /* ... and of those that it went through */
    uint64_t copied;  /* bytes that were in memory, and wanted */
    uint64_t swapped; /* bytes that are not: left out */
    uint64_t ns;      /* how long it took */
    bool cut;         /* a limit was reached before its end */
};

/* A piece: data is a copy of [addr, addr + size), 0 where a page isn't in memory. addr is a
 * multiple of 4,096, and of 16,384 where the mapping doesn't begin there. 0; else: that ends the
 * scan, and is returned. */
typedef int scan_visit(void *arg, const uint8_t *data, size_t size, uint64_t addr);

/* Reads the mappings and goes through them. 0 or what visit() or unwanted() returned; -ESRCH,
 * -EPERM, -EACCES, -ENOMEM. scan->maps stays until scan_deinit(). */
int scan_run(struct scan *scan, scan_visit *visit, void *arg);
void scan_deinit(struct scan *scan);
