/* Reading a ring buffer that a program in the kernel writes. One reader at a time.
 * Source: Documentation/bpf/ringbuf.rst of Linux. */
#pragma once

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

struct kernel_ring {
    int fd;                  /* of the map; readable when the program wakes its reader */
    uint32_t bytes;          /* a power of two */
    volatile uint64_t *read; /* position of the reader, which we write */
    const volatile uint64_t *written;
    const uint8_t *data; /* twice, so that no record is cut */
};

/* Takes over the descriptor of one (map_new_ring()). -errno; the caller owns it
 * (kernel_ring_deinit). */
int kernel_ring_init(struct kernel_ring *ring, int fd, uint32_t bytes);
void kernel_ring_deinit(struct kernel_ring *ring);
/* Calls each() with all records that are there now, oldest first, until it says false; they are
 * valid during the call and aligned to 8 bytes. */
void kernel_ring_read(struct kernel_ring *ring,
                      bool (*each)(void *arg, const void *record, size_t size), void *arg);
