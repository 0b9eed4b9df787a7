#include "fs/recording/ring_copy.h"

#include "schema/rows.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* ---- writing ---- */

struct copying {
    struct text *out;
    size_t begin;
    uint64_t lost; /* before the next row */
};

static void on_lost(void *arg, uint64_t count)
{
    struct copying *copying = arg;

    copying->lost = ring_count_add(count, copying->lost);
}

static int on_row(void *arg, const struct ring_row *row)
{
    struct copying *copying = arg;

    text_add(copying->out, (const char *)&copying->lost, sizeof copying->lost);
    text_add(copying->out, (const char *)row, row->size);
    copying->lost = 0;
    if (copying->out->error || copying->out->cut)
        return -ENOMEM;
    return copying->out->size - copying->begin >= RING_COPY_BYTES;
}

/* Copies the rows behind *at. Those that are left out of many, or can't be had any more, are lost
 * before the next one. */
static int copy_rows(struct ring_reader *ring, const struct ring_ask *ask, struct ring_position *at,
                     struct ring_told *told, struct text *out)
{
    struct copying copying = {.out = out, .begin = out->size};
    const struct ring_follower follower = {on_row, on_lost, &copying};
    const struct ring_counts *counts = &told->counts;

    if (counts->written > at->row && counts->written - at->row > ask->most) {
        copying.lost = counts->written - ask->most - at->row;
        at->row = counts->written - ask->most;
    }
    at->dropped = UINT64_MAX; /* told apart from the rows */
    int r = ring_reader_follow(ring, at, &follower);
    told->more = r == 1;
    told->bytes = out->size - copying.begin;
    return r < 0 ? r : 0;
}

int ring_copy_write(struct ring_reader *ring, const struct ring_ask *ask,
                    struct ring_position *behind, struct text *out)
{
    struct ring_position at = ask->goes_on ? *behind : ask->at;
    struct ring_told told;
    size_t head = out->size;
    int r = 0;

    memset(&told, 0, sizeof told);
    told.serial = ask->serial;
    told.begin = at;
    text_add(out, (const char *)&told, sizeof told);
    if (out->error || out->cut)
        return -ENOMEM;
    if (!ring)
        return 0;
    told.is_there = 1;
    told.since = ring_reader_since(ring);
    told.dropped = ring_reader_dropped(ring);
    told.size = ring_reader_size(ring) - RING_HEADER_SIZE;
    ring_reader_count(ring, &told.counts);
    if (told.since != ask->since)
        told.begin = ring_reader_position(ring, &ask->mark);
    else if (ask->most)
        r = copy_rows(ring, ask, &at, &told, out);
    *behind = at;
    if (r == 0)
        memcpy(out->data + head, &told, sizeof told);
    return r;
}

/* ---- reading ---- */

static bool is_count(uint64_t n) { return n <= RING_COUNT_MAX; }

static bool is_sane(const struct ring_told *told)
{
    return told->is_there <= 1 && told->more <= 1 && isfinite(told->since) &&
           is_count(told->begin.row) && is_count(told->counts.written) &&
           is_count(told->counts.kept) && is_count(told->counts.lost) &&
           told->size <= RING_SIZE_MAX && told->bytes % sizeof(uint64_t) == 0;
}

/* Of a ring that was followed what came is told from where it was asked on. */
static bool is_answer(const struct ring_ask *ask, const struct ring_told *told)
{
    return told->serial == ask->serial && (!told->is_there || told->since != ask->since ||
                                           ask->goes_on || told->begin.row == ask->at.row);
}

/* The row behind a count of lost ones. *size: of both; 0: it is none. */
static const struct ring_row *row_at(const char *p, uint64_t left, const struct ring_layout *layout,
                                     uint64_t *lost, size_t *size)
{
    const struct ring_row *row = (const struct ring_row *)(p + sizeof *lost);

    *size = 0;
    if (left < sizeof *lost || left > UINT32_MAX ||
        !ring_row_fits(layout, row, (uint32_t)(left - sizeof *lost)))
        return NULL;
    memcpy(lost, p, sizeof *lost);
    *size = is_count(*lost) ? sizeof *lost + row->size : 0;
    return row;
}

static bool has_rows(const struct ring_copy *copy)
{
    const struct ring_layout *layout = &recorded_layouts[copy->ask.table];
    uint64_t left = copy->told.bytes, lost;
    const char *p = copy->rows;

    for (size_t size; left; p += size, left -= size) {
        row_at(p, left, layout, &lost, &size);
        if (!size)
            return false;
    }
    return true;
}

int ring_copies_read(struct ring_copy *copies, size_t n, const struct text *answer)
{
    const char *p = answer->data;
    size_t left = answer->size;

    for (size_t i = 0; i < n; i++) {
        struct ring_copy *copy = &copies[i];
        if (left < sizeof copy->told)
            return -EPROTO;
        memcpy(&copy->told, p, sizeof copy->told);
        p += sizeof copy->told;
        left -= sizeof copy->told;
        copy->rows = p;
        if (!is_sane(&copy->told) || !is_answer(&copy->ask, &copy->told) ||
            copy->told.bytes > left || !has_rows(copy))
            return -EPROTO;
        p += copy->told.bytes;
        left -= copy->told.bytes;
    }
    return left ? -EPROTO : 0;
}

static void note_lost(const struct ring_follower *follower, uint64_t count)
{
    if (count)
        follower->lost(follower->arg, count);
}

int ring_copy_pass(const struct ring_copy *copy, struct ring_position *at,
                   const struct ring_follower *follower)
{
    const struct ring_layout *layout = &recorded_layouts[copy->ask.table];
    const struct ring_told *told = &copy->told;
    uint64_t left = told->bytes, lost = 0;
    const char *p = copy->rows;
    int r = 0;

    at->row = told->begin.row;
    for (size_t size; left && r == 0; p += size, left -= size) {
        const struct ring_row *row = row_at(p, left, layout, &lost, &size);
        note_lost(follower, lost);
        r = follower->row(follower->arg, row);
        at->row = ring_count_add(at->row, ring_count_add(1, lost));
    }
    if (told->dropped > at->dropped && is_count(told->dropped))
        note_lost(follower, told->dropped - at->dropped);
    at->dropped = told->dropped;
    return r;
}
