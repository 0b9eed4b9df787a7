#include "agent/record/ring.h"

#include "agent/arch/arch.h"
#include "agent/base/cleanup.h"
#include "agent/base/memory_left.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define TRIES 64       /* of who finds the ring busy; each about as long as a quarter of a row */
#define CLOSE_TRIES 10 /* a millisecond each */
#define PIECE (256u << 10) /* bytes that are mapped at once */

static struct ring_block *block_of(const struct ring *ring, uint64_t sequence)
{
    uint64_t slot = (sequence - 1) % ring->blocks;
    return (struct ring_block *)((char *)ring->header + RING_HEADER_SIZE + slot * ring->block_size);
}

/* ---- making ---- */

/* A ring has some 64 blocks, so that overwriting one loses little. */
static uint32_t choose_block_size(uint64_t size)
{
    uint32_t block = RING_BLOCK_MIN;
    while (block < RING_BLOCK_MAX && block * 64ull < size)
        block *= 2;
    return block;
}

/* A file that grows beyond the limit ends the process by SIGXFSZ. */
static bool may_have_file(uint64_t size)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur >= size;
}

/* Not more than half of what is left: the program goes on to need some. Where it can't be found
 * out, as much as is the rule. */
static int may_take(uint64_t size)
{
    uint64_t left = memory_left();

    if (!left)
        return size <= RING_SIZE_DEFAULT + RING_HEADER_SIZE ? 0 : -ENODATA;
    return size <= left / 2 ? 0 : -ENOMEM;
}

/* While memory is mapped or unmapped no other thread of the program can do so: piece by piece. */
static void unmap(char *address, size_t size)
{
    for (size_t at = 0; at < size; at += PIECE)
        munmap(address + at, size - at < PIECE ? size - at : PIECE);
}

/* Has the kernel allocate all of the file's memory: a page that can't be had later is a SIGBUS. */
static int populate(int fd, char *address, size_t size)
{
    struct stat st;

    for (size_t at = 0; at < size; at += PIECE)
        if (mmap(address + at, size - at < PIECE ? size - at : PIECE, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, (off_t)at) == MAP_FAILED)
            return -errno;
    if (fstat(fd, &st) < 0)
        return -errno;
    return (uint64_t)st.st_blocks * 512 < size ? -ENOMEM : 0; /* mmap() doesn't say so */
}

static int map(size_t size, struct ring *ring)
{
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
    struct stat st;

    if (!may_have_file(size))
        return -EFBIG;
    int r = may_take(size);
    if (r < 0)
        return r;
    _cleanup_close_ int fd = memfd_create("probefs-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t)size) < 0 || fstat(fd, &st) < 0)
        return -errno;
    void *address = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED)
        return -errno;
    r = populate(fd, address, size);
    if (r == 0 && fcntl(fd, F_ADD_SEALS, seals) < 0)
        r = -errno;
    if (r < 0) {
        unmap(address, size);
        return r;
    }
    /* the program's core files stay as large as they are */
    (void)madvise(address, size, MADV_DONTDUMP);
    ring->header = address;
    ring->mapped = size;
    ring->inode = st.st_ino;
    ring->fd = steal_fd(fd);
    return 0;
}

static void write_header(const struct ring *ring, const struct ring_layout *layout, double now)
{
    struct ring_header *header = ring->header;

    *header = (struct ring_header){
        .version = RING_VERSION,
        .pid = getpid(),
        .layout = layout->hash,
        .size = (uint64_t)ring->blocks * ring->block_size,
        .block_size = ring->block_size,
        .blocks = ring->blocks,
        .since = now,
    };
    strncpy(header->table, layout->name, sizeof header->table - 1);
    __atomic_store_n(&header->magic, RING_MAGIC, __ATOMIC_RELEASE);
}

int ring_new(const struct ring_layout *layout, uint64_t size, double now, struct ring **out)
{
    static uint32_t numbers;

    if (size < RING_SIZE_MIN || size > RING_SIZE_MAX)
        return -EINVAL;
    _cleanup_free_ struct ring *ring = calloc(1, sizeof *ring);
    if (!ring)
        return -ENOMEM;
    ring->block_size = choose_block_size(size);
    ring->blocks = (uint32_t)((size + ring->block_size - 1) / ring->block_size);
    int r = map(RING_HEADER_SIZE + (size_t)ring->blocks * ring->block_size, ring);
    if (r < 0)
        return r;
    ring->number = __atomic_add_fetch(&numbers, 1, __ATOMIC_RELAXED);
    ring->oldest = ring->number;
    write_header(ring, layout, now);
    *out = steal_pointer(ring);
    return 0;
}

static void give_up_fd(struct ring *ring)
{
    struct stat st;

    if (ring->fd >= 0 && fstat(ring->fd, &st) == 0 && st.st_ino == ring->inode)
        close(ring->fd);
    ring->fd = -1;
}

void ring_free(struct ring *ring)
{
    if (!ring)
        return;
    give_up_fd(ring);
    unmap((char *)ring->header, ring->mapped);
    free(ring);
}

/* ---- writing ---- */

static bool enter(struct ring *ring)
{
    for (int i = 0; i < TRIES; i++) {
        if (!__atomic_test_and_set(&ring->busy, __ATOMIC_ACQUIRE))
            return true;
        arch_relax();
    }
    return false;
}

static void leave(struct ring *ring) { __atomic_clear(&ring->busy, __ATOMIC_RELEASE); }

/* Empties the oldest block, and writes there from now on. */
static void next_block(struct ring *ring)
{
    uint64_t sequence = ring->head + 1;
    struct ring_block *block = block_of(ring, sequence);

    __atomic_store_n(&block->sequence, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    __atomic_store_n(&block->used, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&block->first, ring->rows, __ATOMIC_RELAXED);
    __atomic_store_n(&block->sequence, sequence, __ATOMIC_RELEASE);
    __atomic_store_n(&ring->header->head, sequence, __ATOMIC_RELEASE);
    ring->head = sequence;
    ring->block = block;
    ring->used = 0;
    ring->room = ring->block_size - (uint32_t)sizeof *block;
}

void ring_lose(struct ring *ring, uint64_t rows)
{
    __atomic_fetch_add(&ring->header->dropped, rows, __ATOMIC_RELAXED);
}

struct ring_row *ring_begin(struct ring *ring, uint32_t size)
{
    if (size > RING_ROW_MAX || !enter(ring)) {
        ring_lose(ring, 1);
        return NULL;
    }
    if (ring->room < size)
        next_block(ring);
    struct ring_row *row = (struct ring_row *)(ring->block->rows + ring->used);
    ring->begun = size;
    row->size = size;
    row->zero = 0;
    return row;
}

void ring_end(struct ring *ring, struct ring_ticket *ticket)
{
    if (ticket)
        *ticket = (struct ring_ticket){
            .sequence = ring->head, .row = ring->rows, .offset = ring->used, .ring = ring->number};
    ring->used += ring->begun;
    ring->room -= ring->begun;
    ring->rows++;
    __atomic_store_n(&ring->block->used, ring->used, __ATOMIC_RELEASE);
    leave(ring);
}

/* ---- rows that are there ---- */

static uint64_t oldest_block(const struct ring *ring)
{
    return ring->head > ring->blocks ? ring->head - ring->blocks + 1 : 1;
}

/* The row that begins at `at`; NULL: there is none. */
static struct ring_row *row_at(const struct ring *ring, struct ring_block *block, uint32_t at,
                               uint32_t *size)
{
    uint32_t used = block->used, room = ring->block_size - (uint32_t)sizeof *block;
    struct ring_row *row = (struct ring_row *)(block->rows + at);

    used = used < room ? used : room;
    if (used - at < sizeof *row || at >= used)
        return NULL;
    *size = row->size;
    return *size >= sizeof *row && *size <= used - at && *size % 8 == 0 ? row : NULL;
}

/* Finds a row by its number: one that was taken over from another ring lies somewhere else now. */
static struct ring_row *search(const struct ring *ring, uint64_t number, uint32_t *size)
{
    uint64_t sequence = ring->head;
    struct ring_row *row;

    while (sequence > oldest_block(ring) && block_of(ring, sequence)->first > number)
        sequence--;
    struct ring_block *block = block_of(ring, sequence);
    if (sequence == 0 || block->first > number)
        return NULL;
    uint32_t at = 0;
    for (number -= block->first; (row = row_at(ring, block, at, size)) && number > 0; number--)
        at += *size;
    return row;
}

static struct ring_row *find(const struct ring *ring, const struct ring_ticket *ticket,
                             uint32_t *size)
{
    if (ticket->sequence == 0 || ticket->ring > ring->number || ticket->ring < ring->oldest)
        return NULL;
    if (ticket->ring != ring->number)
        return search(ring, ticket->row, size);
    if (ticket->sequence < oldest_block(ring))
        return NULL;
    if (ticket->sequence == ring->head) /* as most are: a division less */
        return row_at(ring, ring->block, ticket->offset, size);
    return row_at(ring, block_of(ring, ticket->sequence), ticket->offset, size);
}

bool ring_patch_words(struct ring *ring, const struct ring_ticket *ticket, unsigned column,
                      const uint64_t *words, unsigned count)
{
    uint32_t size;

    if (!enter(ring))
        return false;
    struct ring_row *row = find(ring, ticket, &size);
    bool there = row && size >= ring_row_size(column + count, 0);
    while (there && count-- > 0)
        __atomic_store_n(&row->words[column + count], words[count], __ATOMIC_RELEASE);
    leave(ring);
    return there;
}

static void append_block(struct ring *ring, const struct ring *from, uint64_t sequence)
{
    struct ring_block *block = block_of(from, sequence);
    const struct ring_row *old;
    uint32_t at = 0, size;

    while ((old = row_at(from, block, at, &size))) {
        struct ring_row *row = ring_begin(ring, size);
        if (!row)
            return;
        memcpy(row->words, old->words, size - sizeof *row);
        ring_end(ring, NULL);
        at += size;
    }
}

static void give_up_rows(struct ring *ring)
{
    unmap((char *)ring->header + RING_HEADER_SIZE, ring->mapped - RING_HEADER_SIZE);
    ring->mapped = RING_HEADER_SIZE;
    give_up_fd(ring);
}

bool ring_close(struct ring *ring)
{
    for (int i = 0; i < CLOSE_TRIES; i++) {
        if (enter(ring))
            return true;
        poll(NULL, 0, 1);
    }
    return false;
}

void ring_take_over(struct ring *ring, struct ring *from)
{
    ring->oldest = from->oldest;
    ring->rows = from->head ? block_of(from, oldest_block(from))->first : 0;
    ring->header->dropped = from->header->dropped;
    ring->header->since = from->header->since;
    for (uint64_t sequence = oldest_block(from); sequence <= from->head; sequence++)
        append_block(ring, from, sequence);
    give_up_rows(from);
}

uint32_t ring_text_cut(const char *bytes)
{
    uint32_t size = RING_TEXT_MAX;

    /* what follows begins a character, within the three bytes that one has at
     * most after its first */
    while (size > RING_TEXT_MAX - 3 && (bytes[size] & 0xc0) == 0x80)
        size--;
    return (bytes[size] & 0xc0) == 0x80 ? RING_TEXT_MAX : size;
}
