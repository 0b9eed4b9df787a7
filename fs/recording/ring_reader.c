/* Rows are read from copies of blocks, oldest first: the writer overwrites in the same order and
 * more slowly, so it seldom catches up. What the blocks hold is taken down first (struct
 * ring_held), so that all rows are of one moment; then many blocks are copied at once, and only
 * after that their rows are passed on, which takes longer. A block that was overwritten until its
 * turn came is lost, with those before it. A reader that was held up, so that all were, tries
 * again.
 *
 * Nothing is read twice from the shared memory and used unchecked: the header is copied when the
 * ring is opened, and rows are checked in the copy of their block. */
#include "fs/recording/ring_reader.h"

#include "agent/base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define SEE_TRIES 16          /* to see the newest block before it is overwritten */
#define SCAN_TRIES 8          /* to copy that one before it is */
#define BATCH_SIZE (8u << 20) /* bytes that are copied at once */

/* ---- opening ---- */

/* Reading ends in no SIGBUS: the file can't shrink under the mapping, and all of its memory is
 * there and stays, since no hole can be made in a file that can't be written to by any but the
 * mapping that its owner has. */
bool ring_file_is_safe(int fd, uint64_t *size)
{
    const int wanted = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;
    struct statfs fs;
    struct stat st;

    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & wanted) != wanted || fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
        return false;
    *size = (uint64_t)st.st_size;
    /* st_blocks counts what lies behind the end, too */
    return S_ISREG(st.st_mode) && fs.f_type == TMPFS_MAGIC &&
           lseek(fd, 0, SEEK_HOLE) == (off_t)*size;
}

static bool header_fits(const struct ring_header *header, const struct ring_layout *layout,
                        uint64_t size)
{
    return header->magic == RING_MAGIC && header->version == RING_VERSION &&
           header->layout == layout->hash &&
           strncmp(header->table, layout->name, sizeof header->table) == 0 &&
           header->block_size >= RING_BLOCK_MIN && header->block_size <= RING_BLOCK_MAX &&
           (header->block_size & (header->block_size - 1)) == 0 && header->blocks > 0 &&
           header->size >= RING_SIZE_MIN && header->size <= RING_SIZE_MAX &&
           header->size == (uint64_t)header->blocks * header->block_size &&
           size == RING_HEADER_SIZE + header->size;
}

static void set_layout(struct ring_reader *reader, const struct ring_layout *layout)
{
    reader->layout = layout;
    reader->row_min = (uint32_t)(sizeof(struct ring_row) + layout->columns * sizeof(uint64_t));
    for (unsigned i = 0; i < layout->columns; i++)
        if (layout->types[i] == 'T')
            reader->texts[reader->n_texts++] = (uint8_t)i;
}

int ring_reader_open(int fd, const struct ring_layout *layout, struct ring_reader **out)
{
    struct ring_header header;
    uint64_t size;

    if (layout->columns > RING_COLUMNS_MAX || !ring_file_is_safe(fd, &size) ||
        pread(fd, &header, sizeof header, 0) != (ssize_t)sizeof header ||
        !header_fits(&header, layout, size))
        return -EPROTO;
    _cleanup_free_ struct ring_reader *reader = calloc(1, sizeof *reader);
    if (!reader)
        return -ENOMEM;
    void *memory = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return errno == EACCES || errno == EPERM ? -EPROTO : -ENOMEM;
    reader->refs = 1;
    reader->memory = memory;
    reader->mapped = size;
    reader->block_size = header.block_size;
    reader->blocks = header.blocks;
    reader->batch = header.size < BATCH_SIZE ? (uint32_t)header.size : BATCH_SIZE;
    reader->since = isfinite(header.since) ? header.since : 0;
    set_layout(reader, layout);
    *out = steal_pointer(reader);
    return 0;
}

struct ring_reader *ring_reader_ref(struct ring_reader *reader)
{
    __atomic_fetch_add(&reader->refs, 1, __ATOMIC_RELAXED);
    return reader;
}

void ring_reader_unref(struct ring_reader *reader)
{
    if (!reader || __atomic_sub_fetch(&reader->refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    munmap((void *)reader->memory, reader->mapped);
    free(reader);
}

const struct ring_layout *ring_reader_layout(const struct ring_reader *reader)
{
    return reader->layout;
}
size_t ring_reader_size(const struct ring_reader *reader) { return reader->mapped; }
double ring_reader_since(const struct ring_reader *reader) { return reader->since; }

/* ---- blocks ---- */

static bool still_there(const struct ring_held *held)
{
    __atomic_thread_fence(__ATOMIC_ACQUIRE); /* what was read of the block was read before this */
    return __atomic_load_n(&held->block->sequence, __ATOMIC_RELAXED) == held->sequence;
}

struct ring_held ring_see(const struct ring_reader *reader, uint64_t sequence)
{
    uint64_t slot = (sequence - 1) % reader->blocks;
    const struct ring_block *block =
        (const struct ring_block *)(reader->memory + RING_HEADER_SIZE + slot * reader->block_size);
    struct ring_held held = {.block = block, .sequence = sequence};
    const uint32_t room = reader->block_size - (uint32_t)sizeof *block;

    if (__atomic_load_n(&block->sequence, __ATOMIC_ACQUIRE) != sequence)
        return (struct ring_held){0};
    held.first = __atomic_load_n(&block->first, __ATOMIC_RELAXED);
    if (held.first > RING_COUNT_MAX)
        held.first = RING_COUNT_MAX;
    held.used = __atomic_load_n(&block->used, __ATOMIC_ACQUIRE) & ~7u;
    if (held.used > room)
        held.used = room;
    return still_there(&held) ? held : (struct ring_held){0};
}

uint32_t ring_extent(const struct ring_reader *reader, uint64_t *oldest)
{
    const struct ring_header *header = (const struct ring_header *)reader->memory;
    uint64_t head = __atomic_load_n(&header->head, __ATOMIC_ACQUIRE);
    uint32_t n = head < reader->blocks ? (uint32_t)head : reader->blocks;

    *oldest = head - n + 1;
    return n;
}

/* ---- counting ---- */

/* written: what the blocks say; kept: what was found in them. */
static struct ring_counts count_up(const struct ring_reader *reader, uint64_t written,
                                   uint64_t kept)
{
    const struct ring_header *header = (const struct ring_header *)reader->memory;
    uint64_t dropped = __atomic_load_n(&header->dropped, __ATOMIC_RELAXED);

    if (written < kept)
        written = kept;
    return (struct ring_counts){.written = written,
                                .kept = kept,
                                .lost = ring_count_add(dropped, written - kept)};
}

/* Rows of a block that isn't copied. */
static uint64_t rows_of(const struct ring_reader *reader, const struct ring_held *held)
{
    uint64_t n = 0;

    for (uint32_t at = 0; held->used - at >= reader->row_min; n++) {
        const struct ring_row *row = (const struct ring_row *)(held->block->rows + at);
        uint32_t size = __atomic_load_n(&row->size, __ATOMIC_RELAXED);
        if (size < reader->row_min || size > held->used - at || size % 8)
            break;
        at += size;
    }
    return still_there(held) ? n : 0;
}

/* false: the newest block was overwritten meanwhile, and all before it. */
static bool count_once(const struct ring_reader *reader, struct ring_counts *out)
{
    uint64_t oldest, written = 0, kept = 0;
    uint32_t n = ring_extent(reader, &oldest);
    struct ring_held held = {0}, next = n ? ring_see(reader, oldest) : held;

    for (uint32_t i = 0; i < n; i++) {
        held = next;
        next = i + 1 < n ? ring_see(reader, oldest + i + 1) : (struct ring_held){0};
        if (!held.sequence)
            continue;
        /* the block after it says how many rows it has */
        uint64_t rows = held.used / reader->row_min;
        if (!next.sequence)
            rows = rows_of(reader, &held);
        else if (next.first < ring_count_add(held.first, rows))
            rows = next.first > held.first ? next.first - held.first : 0;
        kept += rows;
        if (written < ring_count_add(held.first, rows))
            written = ring_count_add(held.first, rows);
    }
    *out = count_up(reader, written, kept);
    return n == 0 || held.sequence;
}

void ring_reader_count(struct ring_reader *reader, struct ring_counts *out)
{
    for (int i = 0; i < SEE_TRIES && !count_once(reader, out); i++)
        ;
}

/* ---- scanning ---- */

/* Words may be completed meanwhile (ring_format.h), so each is loaded whole. */
void ring_copy_block(struct ring_held *held, uint64_t *to)
{
    const uint64_t *from = (const uint64_t *)held->block->rows;

    for (uint32_t i = 0, n = held->used / 8; i < n; i++)
        to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
    held->copy = still_there(held) ? (const char *)to : NULL;
}

/* Copies the first of n blocks. Returns how many these are. */
static uint32_t copy_batch(const struct ring_reader *reader, struct ring_held *all, uint32_t n,
                           char *bytes)
{
    size_t fill = 0;
    uint32_t i;

    for (i = 0; i < n && fill + reader->block_size <= reader->batch; i++)
        if (all[i].sequence) {
            ring_copy_block(&all[i], (uint64_t *)(bytes + fill));
            fill += all[i].used;
        }
    return i;
}

static bool row_good(const struct ring_reader *reader, const struct ring_row *row, uint32_t left)
{
    if (row->size < reader->row_min || row->size > left || row->size % 8)
        return false;
    for (unsigned i = 0; i < reader->n_texts; i++) {
        uint64_t word = row->words[reader->texts[i]];
        uint32_t offset = (uint32_t)word, size = (uint32_t)(word >> 32) & ~RING_TEXT_CUT;
        if (word && (size > RING_TEXT_MAX || offset < reader->row_min || offset > row->size ||
                     size > row->size - offset))
            return false;
    }
    return true;
}

int ring_pass_rows(const struct ring_reader *reader, const struct ring_held *held,
                   int (*each)(void *arg, const struct ring_row *row), void *arg, uint64_t *n,
                   bool *good)
{
    uint32_t at = 0;
    int r = 0;

    for (*n = 0; at < held->used && r == 0; ++*n) {
        const struct ring_row *row = (const struct ring_row *)(held->copy + at);
        if (held->used - at < reader->row_min || !row_good(reader, row, held->used - at))
            break;
        r = each(arg, row);
        at += row->size;
    }
    *good = at == held->used;
    return r;
}

bool ring_row_fits(const struct ring_layout *layout, const struct ring_row *row, uint32_t left)
{
    struct ring_reader shape = {.layout = layout};

    set_layout(&shape, layout);
    return left >= shape.row_min && row_good(&shape, row, left);
}

/* What all blocks hold now, oldest first. Returns how many these are. */
static uint32_t see_all(const struct ring_reader *reader, struct ring_held *all)
{
    int tries = SEE_TRIES;
    uint64_t oldest;
    uint32_t n;

    do {
        n = ring_extent(reader, &oldest);
        for (uint32_t i = 0; i < n; i++)
            all[i] = ring_see(reader, oldest + i);
    } while (n > 0 && !all[n - 1].sequence && --tries > 0);
    return n;
}

struct sums {
    uint64_t written, kept;
};

/* Passes the rows of a batch of n blocks, but for those before one that was lost. */
static int pass_batch(const struct ring_reader *reader, const struct ring_held *all, uint32_t n,
                      int (*each)(void *arg, const struct ring_row *row), void *arg,
                      struct sums *sums)
{
    uint32_t from = 0;
    int r = 0;

    for (uint32_t i = 0; i < n; i++)
        if (!all[i].copy)
            from = i + 1;
    if (from > 0 && sums->kept > 0) {
        r = each(arg, NULL);
        sums->kept = 0;
    }
    for (uint32_t i = 0; i < n && r == 0; i++) {
        uint64_t here = 0;
        bool good = true;
        if (i >= from)
            r = ring_pass_rows(reader, &all[i], each, arg, &here, &good);
        sums->kept += here;
        if (sums->written < ring_count_add(all[i].first, here + !good))
            sums->written = ring_count_add(all[i].first, here + !good);
    }
    return r;
}

/* *found: whether there are rows, or no block. */
static int scan_once(const struct ring_reader *reader, struct ring_held *all, char *bytes,
                     int (*each)(void *arg, const struct ring_row *row), void *arg,
                     struct ring_counts *counts, bool *found)
{
    uint32_t n = see_all(reader, all), batch;
    struct sums sums = {0};
    int r = 0;

    for (uint32_t i = 0; i < n && r == 0; i += batch) {
        batch = copy_batch(reader, all + i, n - i, bytes);
        r = pass_batch(reader, all + i, batch, each, arg, &sums);
    }
    *counts = count_up(reader, sums.written, sums.kept);
    *found = n == 0 || sums.kept > 0;
    return r;
}

int ring_reader_scan(struct ring_reader *reader, int (*each)(void *arg, const struct ring_row *row),
                     void *arg, struct ring_counts *counts)
{
    int r, tries = SCAN_TRIES;
    struct ring_counts now;
    bool found;

    _cleanup_free_ struct ring_held *all = calloc(reader->blocks, sizeof *all);
    _cleanup_free_ char *bytes = malloc(reader->batch);
    if (!all || !bytes)
        return -ENOMEM;
    do {
        r = scan_once(reader, all, bytes, each, arg, &now, &found);
    } while (r == 0 && !found && --tries > 0);
    if (counts)
        *counts = now;
    return r;
}
