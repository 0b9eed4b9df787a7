/* Memory of a target that does not change while it is mapped (code and the tables beside it),
 * kept by pages, since its readers ask for many small pieces near each other.
 *
 * Not thread-safe. */
#pragma once

#include "fs/remote/memory/memory.h"

#define PAGES_MAX 256 /* pages of 4 KiB that are kept at once */

struct page {
    uint64_t addr;
    uint8_t *data; /* NULL: empty */
};

struct pages {
    const struct memory *memory;
    struct page slots[PAGES_MAX];
};

/* Copies [addr, addr + len). 0; -EFAULT: not readable; -ESRCH, -EPERM, -ENOMEM. */
int pages_read(struct pages *pages, uint64_t addr, void *buf, size_t len);
/* Forgets and frees everything that was read. */
void pages_clear(struct pages *pages);
