#include "fs/remote/memory/memory.h"

#include "fs/remote/memory/core.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#define IOV_BATCH 1024 /* IOV_MAX, limits.h */

static bool image_copy(const struct memory_image *image, uint64_t addr, void *buf, size_t len)
{
    if (addr < image->base || addr - image->base > image->size ||
        len > image->size - (addr - image->base))
        return false;
    memcpy(buf, image->data + (addr - image->base), len);
    return true;
}

int memory_read(const struct memory *m, uint64_t addr, void *buf, size_t len)
{
    struct memory_range range = {.addr = addr, .data = buf, .len = (uint32_t)len};

    if (len > UINT32_MAX)
        return -EFAULT;
    int r = memory_read_ranges(m, &range, 1);
    if (r < 0)
        return r;
    return range.ok ? 0 : -EFAULT;
}

/* process_vm_readv(2) stops at the first unreadable byte and reports how far it came: mark what
 * arrived, step over the culprit, go on behind it. */
static int read_batch(const struct memory *m, struct memory_range *ranges, size_t n)
{
    struct iovec local[IOV_BATCH], remote[IOV_BATCH];

    for (size_t i = 0; i < n; i++) {
        local[i] = (struct iovec){ranges[i].data, ranges[i].len};
        remote[i] = (struct iovec){(void *)(uintptr_t)ranges[i].addr, ranges[i].len};
        ranges[i].ok = false;
    }
    for (size_t i = 0; i < n;) {
        ssize_t got = process_vm_readv(m->pid, local + i, n - i, remote + i, n - i, 0);
        if (got < 0 && errno != EFAULT)
            return -errno;
        size_t left = got < 0 ? 0 : (size_t)got;
        while (i < n && left >= ranges[i].len) {
            left -= ranges[i].len;
            ranges[i++].ok = true;
        }
        i++; /* the culprit, or one past the end */
    }
    return 0;
}

int memory_read_ranges(const struct memory *m, struct memory_range *ranges, size_t n)
{
    if (m->core) {
        for (size_t i = 0; i < n; i++)
            ranges[i].ok = core_read(m->core, ranges[i].addr, ranges[i].data, ranges[i].len);
        return 0;
    }
    if (m->image) {
        for (size_t i = 0; i < n; i++)
            ranges[i].ok = image_copy(m->image, ranges[i].addr, ranges[i].data, ranges[i].len);
        return 0;
    }
    for (size_t i = 0; i < n; i += IOV_BATCH) {
        int r = read_batch(m, ranges + i, n - i < IOV_BATCH ? n - i : IOV_BATCH);
        if (r < 0)
            return r;
    }
    return 0;
}

ssize_t memory_read_string(const struct memory *m, uint64_t addr, char *buf, size_t cap)
{
    size_t n = 0;

    while (n + 1 < cap) {
        /* never across a page: the next one need not be mapped */
        size_t step = 4096 - ((addr + n) & 4095);
        if (step > 64)
            step = 64;
        if (step > cap - 1 - n)
            step = cap - 1 - n;
        int r = memory_read(m, addr + n, buf + n, step);
        if (r < 0)
            return r;
        char *end = memchr(buf + n, 0, step);
        if (end)
            return end - buf;
        n += step;
    }
    buf[n] = 0;
    return (ssize_t)n;
}
