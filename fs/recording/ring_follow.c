/* Only what came since is copied and checked: of the block in which that begins, and of those after
 * it. A position is a number of rows, so that it also holds in another ring that took them over. */
#include "fs/recording/ring_copy.h"

#include "agent/base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define MARK_TRIES 4 /* to read the newest block before it is overwritten */

/* The newest block that begins at `row` or before it, else the oldest one that
 * is there; sequence 0: none. */
static struct ring_held find_row(const struct ring_reader *reader, uint64_t row)
{
    struct ring_held found = {0};
    uint64_t oldest;

    for (uint32_t n = ring_extent(reader, &oldest); n > 0; n--) {
        struct ring_held held = ring_see(reader, oldest + n - 1);
        if (!held.sequence)
            break;
        found = held;
        if (held.first <= row)
            break;
    }
    return found;
}

struct following {
    const struct ring_follower *follower;
    uint64_t known; /* rows that have been passed on before */
};

static int pass_new(void *arg, const struct ring_row *row)
{
    struct following *following = arg;

    if (following->known == 0)
        return following->follower->row(following->follower->arg, row);
    following->known--;
    return 0;
}

static void note_lost(const struct ring_follower *follower, uint64_t count)
{
    if (count > 0)
        follower->lost(follower->arg, count);
}

/* The block to look at after this one, of which all rows before `row` were passed on: the same once
 * more, if rows came to it between it was seen and the next one was begun. */
static struct ring_held next_of(const struct ring_reader *reader, const struct ring_held *held,
                                uint64_t row)
{
    struct ring_held next = ring_see(reader, held->sequence + 1);

    if (!next.sequence || next.first <= row)
        return next;
    struct ring_held again = ring_see(reader, held->sequence);
    return again.sequence && again.used > held->used ? again : next;
}

int ring_reader_follow(struct ring_reader *reader, struct ring_position *at,
                       const struct ring_follower *follower)
{
    struct ring_held held = find_row(reader, at->row);
    int r = 0;

    _cleanup_free_ uint64_t *bytes = malloc(reader->block_size);
    if (!bytes)
        return -ENOMEM;
    for (uint32_t i = 0; held.sequence && i < reader->blocks && r == 0; i++) {
        struct following following = {follower, 0};
        uint64_t n;
        bool good;
        ring_copy_block(&held, bytes);
        if (!held.copy) {
            held = find_row(reader, at->row);
            continue;
        }
        if (held.first > at->row) {
            note_lost(follower, held.first - at->row);
            at->row = held.first;
        }
        following.known = at->row - held.first;
        r = ring_pass_rows(reader, &held, pass_new, &following, &n, &good);
        if (at->row < ring_count_add(held.first, n))
            at->row = ring_count_add(held.first, n);
        held = next_of(reader, &held, at->row);
    }
    uint64_t dropped = ring_reader_dropped(reader);
    if (dropped > at->dropped && dropped <= RING_COUNT_MAX)
        note_lost(follower, dropped - at->dropped);
    at->dropped = dropped;
    return r;
}

uint64_t ring_reader_dropped(const struct ring_reader *reader)
{
    const struct ring_header *header = (const struct ring_header *)reader->memory;
    return __atomic_load_n(&header->dropped, __ATOMIC_RELAXED);
}

/* ---- marks ---- */

/* The newest block, by what the header says: nothing but an offset to read at. */
static bool read_block(int fd, const struct ring_header *header, struct ring_block *out)
{
    if (!header->blocks || header->block_size > RING_BLOCK_MAX)
        return false;
    uint64_t slot = (header->head - 1) % header->blocks;
    off_t at = (off_t)(RING_HEADER_SIZE + slot * header->block_size);
    return pread(fd, out, sizeof *out, at) == (ssize_t)sizeof *out && out->sequence == header->head;
}

bool ring_file_mark(int fd, struct ring_mark *out)
{
    struct ring_header header;
    struct ring_block block = {0};

    for (int i = 0; i < MARK_TRIES; i++) {
        if (pread(fd, &header, sizeof header, 0) != (ssize_t)sizeof header)
            return false;
        if (header.head && !read_block(fd, &header, &block))
            continue;
        out->sequence = header.head;
        out->first = block.first;
        out->used = block.used;
        out->dropped = header.dropped;
        return true;
    }
    return false;
}

bool ring_reader_mark(const struct ring_reader *reader, struct ring_mark *out)
{
    struct ring_held held = {0};
    uint64_t oldest;

    for (int i = 0; i < MARK_TRIES; i++) {
        uint32_t n = ring_extent(reader, &oldest);
        if (n)
            held = ring_see(reader, oldest + n - 1);
        if (n && !held.sequence)
            continue;
        out->sequence = held.sequence;
        out->first = held.first;
        out->used = held.used;
        out->dropped = ring_reader_dropped(reader);
        return true;
    }
    return false;
}

struct marking {
    const char *end; /* rows that begin before it were there */
    uint64_t n;
};

static int count_row(void *arg, const struct ring_row *row)
{
    struct marking *marking = arg;

    if ((const char *)row >= marking->end)
        return 1;
    marking->n++;
    return 0;
}

struct ring_position ring_reader_position(const struct ring_reader *reader,
                                          const struct ring_mark *mark)
{
    struct ring_position at = {mark->first > RING_COUNT_MAX ? RING_COUNT_MAX : mark->first,
                               mark->dropped};
    _cleanup_free_ uint64_t *bytes = mark->sequence ? malloc(reader->block_size) : NULL;
    struct ring_held held = mark->sequence ? ring_see(reader, mark->sequence)
                                           : (struct ring_held){0};
    struct marking marking = {0};
    uint64_t n;
    bool good;

    if (!bytes || !held.sequence || held.first != mark->first)
        return at; /* that block is gone: none of what is there now was there */
    ring_copy_block(&held, bytes);
    if (!held.copy)
        return at;
    marking.end = held.copy + (mark->used < held.used ? mark->used : held.used);
    (void)ring_pass_rows(reader, &held, count_row, &marking, &n, &good);
    at.row = ring_count_add(at.row, marking.n);
    return at;
}
