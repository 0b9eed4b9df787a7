#include "fs/sampler/bpf/kernel_ring.h"

#include <errno.h>
#include <linux/bpf.h>
#include <sys/mman.h>
#include <unistd.h>

int kernel_ring_init(struct kernel_ring *ring, int fd, uint32_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct kernel_ring made = {.fd = fd, .bytes = bytes};

    void *read = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, made.fd, 0);
    void *rest = mmap(NULL, page + 2 * (size_t)bytes, PROT_READ, MAP_SHARED, made.fd, (off_t)page);
    int error = errno;
    made.read = read != MAP_FAILED ? read : NULL;
    made.written = rest != MAP_FAILED ? rest : NULL;
    made.data = rest != MAP_FAILED ? (uint8_t *)rest + page : NULL;
    if (!made.read || !made.written) {
        kernel_ring_deinit(&made);
        return -error;
    }
    *ring = made;
    return 0;
}

void kernel_ring_deinit(struct kernel_ring *ring)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    if (ring->read)
        munmap((void *)ring->read, page);
    if (ring->written)
        munmap((void *)ring->written, page + 2 * (size_t)ring->bytes);
    if (ring->fd >= 0)
        close(ring->fd);
    *ring = (struct kernel_ring){.fd = -1};
}

void kernel_ring_read(struct kernel_ring *ring,
                      bool (*each)(void *arg, const void *record, size_t size), void *arg)
{
    uint64_t at = *ring->read, end = __atomic_load_n(ring->written, __ATOMIC_ACQUIRE);

    for (bool more = true; more && at < end;) {
        const uint8_t *header = ring->data + (at & (ring->bytes - 1));
        uint32_t length = __atomic_load_n((const uint32_t *)header, __ATOMIC_ACQUIRE);
        if (length & BPF_RINGBUF_BUSY_BIT)
            return;
        uint32_t size = length & ~(BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT);
        if (!(length & BPF_RINGBUF_DISCARD_BIT))
            more = each(arg, header + BPF_RINGBUF_HDR_SZ, size);
        at += (size + BPF_RINGBUF_HDR_SZ + 7) & ~7ull;
        __atomic_store_n(ring->read, at, __ATOMIC_RELEASE);
    }
}
