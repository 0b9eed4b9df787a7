/* Only what came since is copied and checked: of the block in which that begins, and of those after
 * it. A position is a number of rows, so that it also holds in another ring that took them over. */
#include "fs/recording/ring_reader.h"

#include "agent/base/cleanup.h"

#include <errno.h>
#include <stdlib.h>

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
    const struct ring_header *header = (const struct ring_header *)reader->memory;
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
    uint64_t dropped = __atomic_load_n(&header->dropped, __ATOMIC_RELAXED);
    if (dropped > at->dropped && dropped <= RING_COUNT_MAX)
        note_lost(follower, dropped - at->dropped);
    at->dropped = dropped;
    return r;
}

void ring_reader_end(struct ring_reader *reader, struct ring_position *out)
{
    const struct ring_header *header = (const struct ring_header *)reader->memory;
    struct ring_counts counts;

    ring_reader_count(reader, &counts);
    *out =
        (struct ring_position){counts.written, __atomic_load_n(&header->dropped, __ATOMIC_RELAXED)};
}
