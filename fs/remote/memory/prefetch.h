/* Copies of whole pages, wanted by many small reads at once.
 *
 * What a walk over thousands of objects needs lies close together, for the interpreter's allocator
 * keeps objects of one size side by side. One piece a page is fewer and cheaper to copy than one
 * piece an object: process_vm_readv(2) charges by the piece, hardly by the byte. Reads that follow
 * go to the view as usual and find the page there. */
#pragma once

#include "fs/remote/memory/view.h"

#define PREFETCH_PAGE 4096u

struct prefetch {
    uint64_t *items; /* page addresses, in the order of asking */
    size_t n, alloc;
};

/* Asks for the pages under [addr, addr + len), len at most PREFETCH_PAGE. It is only a hint:
 * without memory it is forgotten, and the reads that follow cost a call each. */
void prefetch_want(struct prefetch *prefetch, uint64_t addr, uint32_t len);
/* Copies all that were asked for into the view and forgets them. 0; -ESRCH, -EPERM, -ENOMEM. */
int prefetch_run(struct prefetch *prefetch, struct view *view);
void prefetch_deinit(struct prefetch *prefetch);

/* view_read() that copies the whole page where [addr, addr + len) lies within one. */
const uint8_t *prefetch_read(struct view *view, uint64_t addr, uint32_t len);
