#include "fs/remote/memory/pages.h"

#include "agent/base/cleanup.h"

#include <errno.h>
#include <string.h>

#define PAGE 4096u

/* The page that begins at addr, or NULL and *error. */
static const uint8_t *find_page(struct pages *pages, uint64_t addr, int *error)
{
    struct page *slot = &pages->slots[(addr / PAGE) % PAGES_MAX];
    _cleanup_free_ uint8_t *data = NULL;

    if (slot->data && slot->addr == addr)
        return slot->data;
    data = steal_pointer(slot->data);
    if (!data && !(data = malloc(PAGE))) {
        *error = -ENOMEM;
        return NULL;
    }
    *error = memory_read(pages->memory, addr, data, PAGE);
    if (*error < 0)
        return NULL;
    slot->addr = addr;
    return slot->data = steal_pointer(data);
}

int pages_read(struct pages *pages, uint64_t addr, void *buf, size_t len)
{
    uint8_t *out = buf;

    if (len > UINT64_MAX - addr)
        return -EFAULT;
    while (len) {
        size_t at = addr % PAGE, step = PAGE - at < len ? PAGE - at : len;
        int error = 0;
        const uint8_t *page = find_page(pages, addr - at, &error);
        if (page)
            memcpy(out, page + at, step);
        else if (error == -EFAULT) /* the image of a test ends within a page */
            error = memory_read(pages->memory, addr, out, step);
        if (error < 0)
            return error;
        addr += step;
        out += step;
        len -= step;
    }
    return 0;
}

void pages_clear(struct pages *pages)
{
    for (size_t i = 0; i < PAGES_MAX; i++) {
        free(pages->slots[i].data);
        pages->slots[i] = (struct page){0};
    }
}
