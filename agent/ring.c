#include "agent/ring.h"

#include "fs/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define TRIES 64 /* of who finds the ring busy; each about as long as a quarter of a row */

static size_t mapped_size(const struct ring_header *header)
{
    return RING_HEADER_SIZE + (size_t)header->blocks * header->block_size;
}

static struct ring_block *block_at(const struct ring_header *header, uint64_t slot)
{
    return (struct ring_block *)((char *)header + RING_HEADER_SIZE + slot * header->block_size);
}

/* Some 64 blocks of it, so that overwriting one loses little. */
static uint32_t choose_block_size(uint64_t size)
{
    uint32_t block = RING_BLOCK_MIN;
    while (block < RING_BLOCK_MAX && block * 64ull < size)
        block *= 2;
    return block;
}

static int map(const struct ring_layout *layout, uint64_t size, struct ring *ring)
{
    uint32_t block_size = choose_block_size(size);
    uint32_t blocks = (uint32_t)((size + block_size - 1) / block_size);
    size_t all = RING_HEADER_SIZE + (size_t)blocks * block_size;
    struct stat st;

    _cleanup_close_ int fd = memfd_create("probefs-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    /* all of it now: a page that is not to be had later would be a SIGBUS */
    int r = posix_fallocate(fd, 0, (off_t)all);
    if (r != 0)
        return -r;
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0 || fstat(fd, &st) < 0)
        return -errno;
    void *address = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (address == MAP_FAILED)
        return -errno;
    *ring = (struct ring){.header = address, .inode = st.st_ino, .fd = steal_fd(fd)};
    *ring->header = (struct ring_header){
        .version = RING_VERSION,
        .pid = getpid(),
        .layout = layout->hash,
        .size = (uint64_t)blocks * block_size,
        .block_size = block_size,
        .blocks = blocks,
    };
    strncpy(ring->header->table, layout->name, sizeof ring->header->table - 1);
    return 0;
}

int ring_new(const struct ring_layout *layout, uint64_t size, double now, struct ring **out)
{
    if (size < RING_SIZE_MIN || size > RING_SIZE_MAX)
        return -EINVAL;
    _cleanup_free_ struct ring *ring = calloc(1, sizeof *ring);
    if (!ring)
        return -ENOMEM;
    int r = map(layout, size, ring);
    if (r < 0)
        return r;
    ring->header->since = now;
    __atomic_store_n(&ring->header->magic, RING_MAGIC, __ATOMIC_RELEASE);
    *out = steal_pointer(ring);
    return 0;
}

void ring_free(struct ring *ring)
{
    struct stat st;

    if (!ring)
        return;
    if (fstat(ring->fd, &st) == 0 && st.st_ino == ring->inode)
        close(ring->fd);
    munmap(ring->header, mapped_size(ring->header));
    free(ring);
}

/* ---- writing ---- */

static bool enter(struct ring *ring)
{
    for (int i = 0; i < TRIES; i++) {
        if (!__atomic_test_and_set(&ring->busy, __ATOMIC_ACQUIRE))
            return true;
        __builtin_ia32_pause();
    }
    return false;
}

static void leave(struct ring *ring) { __atomic_clear(&ring->busy, __ATOMIC_RELEASE); }

/* Empties the oldest block, and writes there from now on. */
static void next_block(struct ring *ring)
{
    struct ring_header *header = ring->header;
    uint64_t sequence = header->head + 1;
    struct ring_block *block = block_at(header, (sequence - 1) % header->blocks);

    __atomic_store_n(&block->sequence, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    __atomic_store_n(&block->used, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&block->first, ring->rows, __ATOMIC_RELAXED);
    __atomic_store_n(&block->sequence, sequence, __ATOMIC_RELEASE);
    __atomic_store_n(&header->head, sequence, __ATOMIC_RELEASE);
    ring->block = block;
    ring->room = header->block_size - (uint32_t)sizeof *block;
}

struct ring_row *ring_begin(struct ring *ring, uint32_t size)
{
    if (size > RING_ROW_MAX || !enter(ring)) {
        __atomic_fetch_add(&ring->header->dropped, 1, __ATOMIC_RELAXED);
        return NULL;
    }
    if (ring->room < size)
        next_block(ring);
    struct ring_row *row = (struct ring_row *)(ring->block->rows + ring->block->used);
    row->size = size;
    row->zero = 0;
    return row;
}

void ring_end(struct ring *ring, struct ring_row *row, struct ring_ticket *ticket)
{
    struct ring_block *block = ring->block;

    if (ticket)
        *ticket = (struct ring_ticket){.sequence = block->sequence, .offset = block->used};
    ring->room -= row->size;
    ring->rows++;
    __atomic_store_n(&block->used, block->used + row->size, __ATOMIC_RELEASE);
    leave(ring);
}

bool ring_patch(struct ring *ring, const struct ring_ticket *ticket, unsigned column, uint64_t word)
{
    struct ring_header *header = ring->header;
    bool there = false;

    if (!ticket->sequence || !enter(ring))
        return false;
    struct ring_block *block = block_at(header, (ticket->sequence - 1) % header->blocks);
    if (block->sequence == ticket->sequence) {
        struct ring_row *row = (struct ring_row *)(block->rows + ticket->offset);
        __atomic_store_n(&row->words[column], word, __ATOMIC_RELEASE);
        there = true;
    }
    leave(ring);
    return there;
}

void ring_take_over(struct ring *ring, const struct ring *from)
{
    const struct ring_header *header = from->header;
    uint64_t oldest = header->head > header->blocks ? header->head - header->blocks + 1 : 1;

    ring->rows = header->head ? block_at(header, (oldest - 1) % header->blocks)->first : 0;
    ring->header->dropped = header->dropped;
    ring->header->since = header->since;
    for (uint64_t sequence = oldest; sequence <= header->head; sequence++) {
        const struct ring_block *block = block_at(header, (sequence - 1) % header->blocks);
        for (uint32_t at = 0; at < block->used;) {
            const struct ring_row *old = (const struct ring_row *)(block->rows + at);
            struct ring_row *row = ring_begin(ring, old->size);
            if (!row)
                return;
            memcpy(row, old, old->size);
            ring_end(ring, row, NULL);
            at += old->size;
        }
    }
}
