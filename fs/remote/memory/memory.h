/* The memory of another process, or of one that a core file has; read from outside and never
 * written. */
#pragma once

#include "agent/base/load.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* One piece of target memory and where its copy goes. */
struct memory_range {
    uint64_t addr;
    void *data; /* room for len bytes, owned by the caller */
    uint32_t len;
    bool ok; /* set by memory_read_ranges(): every byte arrived */
};

struct core;

/* The source of bytes. `pid` is a live process, read by process_vm_readv(2); a core file (core.h)
 * sets `core` instead, and a synthetic image (unit tests, fuzzers) `image`. */
struct memory {
    pid_t pid;
    const struct core *core;
    const struct memory_image *image;
};

/* A synthetic address space: `size` bytes that begin at `base`. */
struct memory_image {
    uint64_t base;
    const uint8_t *data;
    size_t size;
};

/* Reads len bytes at addr. -EFAULT: not all of it is mapped and readable; -ESRCH: the process is
 * gone; -EPERM: not allowed to look. buf is unspecified on failure. */
int memory_read(const struct memory *m, uint64_t addr, void *buf, size_t len);

/* Reads many ranges with as few system calls as possible (one for up to 1,024, IOV_MAX). Sets
 * `ok` of each. Returns 0 even when some are unreadable; -ESRCH, -EPERM when none can be. */
int memory_read_ranges(const struct memory *m, struct memory_range *ranges, size_t n);

/* Reads a NUL-terminated C string of at most cap - 1 bytes; a longer one is cut. Returns its
 * length or -errno. */
ssize_t memory_read_string(const struct memory *m, uint64_t addr, char *buf, size_t cap);
