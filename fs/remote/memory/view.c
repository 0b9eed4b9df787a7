#include "fs/remote/memory/view.h"

#include "fs/base/array.h"

#include <errno.h>
#include <string.h>

/* Overlapping pieces are allowed; a look-up walks back over at most this many. */
#define OVERLAP_MAX 4

struct piece {
    uint64_t addr;
    uint32_t len;
    bool ok, used, fixed; /* fixed: not verified */
    uint8_t *data;
};

struct block {
    struct block *next;
    size_t used, size;
    uint8_t data[];
};

struct view {
    const struct memory *memory;
    struct piece *pieces; /* ascending by address */
    size_t n, alloc;
    struct piece *queue; /* asked for, not copied yet */
    size_t nqueue, queue_alloc;
    struct memory_range *ranges; /* scratch for one read */
    size_t ranges_alloc;
    struct piece **chosen; /* scratch: what is copied together */
    size_t chosen_alloc;
    uint8_t *again; /* scratch for view_verify() */
    size_t again_alloc;
    struct block *blocks; /* where the pieces' bytes live */
    size_t bytes;
    uint64_t asked;
    bool defers;
};

int view_new(const struct memory *memory, struct view **out)
{
    struct view *view = calloc(1, sizeof *view);
    if (!view)
        return -ENOMEM;
    view->memory = memory;
    *out = view;
    return 0;
}

static void free_blocks(struct view *view)
{
    for (struct block *b = view->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    view->blocks = NULL;
    view->bytes = 0;
}

void view_free(struct view *view)
{
    if (!view)
        return;
    free_blocks(view);
    free(view->pieces);
    free(view->queue);
    free(view->ranges);
    free(view->chosen);
    free(view->again);
    free(view);
}

uint64_t view_asked(const struct view *view) { return view->asked; }

size_t view_size(const struct view *view) { return view->bytes; }

void view_reset(struct view *view)
{
    free_blocks(view);
    view->n = view->nqueue = 0;
}

/* Frees an array that has to be made again. */
#define GIVE_UP(array, alloc) (free(array), (array) = NULL, (alloc) = 0)

void view_rest(struct view *view)
{
    GIVE_UP(view->ranges, view->ranges_alloc);
    GIVE_UP(view->chosen, view->chosen_alloc);
    GIVE_UP(view->again, view->again_alloc);
    if (!view->nqueue)
        GIVE_UP(view->queue, view->queue_alloc);
}

static uint8_t *place(struct view *view, size_t len)
{
    len = (len + 15) & ~15ull;
    struct block *b = view->blocks;
    if (!b || b->size - b->used < len) {
        size_t size = len > 64 << 10 ? len : 64 << 10;
        b = malloc(sizeof *b + size);
        if (!b)
            return NULL;
        b->used = 0;
        b->size = size;
        b->next = view->blocks;
        view->blocks = b;
    }
    uint8_t *data = b->data + b->used;
    b->used += len;
    view->bytes += len;
    return data;
}

/* Copies pieces[0..n) in one go and sets their ok. */
static int copy_pieces(struct view *view, struct piece *pieces, size_t n)
{
    if (ARRAY_GROW(view->ranges, view->ranges_alloc, n) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        view->ranges[i] =
            (struct memory_range){pieces[i].addr, pieces[i].data, pieces[i].len, false};
    int r = memory_read_ranges(view->memory, view->ranges, n);
    if (r < 0)
        return r;
    for (size_t i = 0; i < n; i++)
        pieces[i].ok = view->ranges[i].ok;
    return 0;
}

/* ---- copying known pieces ----
 *
 * What a copy costs is pages, not bytes: pieces that share a page are copied as one run. */

/* The run that begins with chosen[i]: index behind its last piece, and its length. */
static size_t run_end(struct piece *const *chosen, size_t n, size_t i, uint32_t *len)
{
    uint64_t start = chosen[i]->addr, end = start + chosen[i]->len;

    for (i++; i < n && chosen[i]->addr >> 12 <= (end - 1) >> 12; i++) {
        uint64_t piece_end = chosen[i]->addr + chosen[i]->len;
        if (piece_end - start > VIEW_PIECE_MAX)
            break;
        if (piece_end > end)
            end = piece_end;
    }
    *len = (uint32_t)(end - start);
    return i;
}

/* How many bytes chosen pieces take that are copied one after the other. */
static size_t runs_size(struct piece *const *chosen, size_t n)
{
    size_t bytes = 0;
    uint32_t len;

    for (size_t i = 0; i < n; bytes += (len + 15) & ~15u)
        i = run_end(chosen, n, i, &len);
    return bytes;
}

/* Copies the chosen pieces to a buffer of runs_size() bytes, sets ranges[i].data and .ok for each
 * chosen piece. */
static int copy_runs(struct view *view, struct piece *const *chosen, size_t n, uint8_t *to)
{
    size_t nruns = 0;
    uint32_t len;

    if (!n)
        return 0;
    if (ARRAY_GROW(view->ranges, view->ranges_alloc, 2 * n) < 0)
        return -ENOMEM;
    struct memory_range *runs = view->ranges + n, *ranges = view->ranges;
    for (size_t i = 0, end; i < n; i = end) {
        end = run_end(chosen, n, i, &len);
        runs[nruns++] = (struct memory_range){chosen[i]->addr, to, len, false};
        for (size_t k = i; k < end; k++)
            ranges[k] = (struct memory_range){chosen[k]->addr,
                                              to + (chosen[k]->addr - chosen[i]->addr),
                                              chosen[k]->len, false};
        to += (len + 15) & ~15u;
    }
    int r = memory_read_ranges(view->memory, runs, nruns);
    if (r < 0)
        return r;
    size_t run = 0;
    for (size_t i = 0, end; i < n; i = end, run++) {
        end = run_end(chosen, n, i, &len);
        for (size_t k = i; k < end; k++)
            ranges[k].ok = runs[run].ok;
        if (!runs[run].ok) /* perhaps only a part of it isn't readable */
            r = memory_read_ranges(view->memory, ranges + i, end - i);
        if (r < 0)
            return r;
    }
    return 0;
}

static int choose(struct view *view, bool fixed_too, size_t *n)
{
    *n = 0;
    if (ARRAY_GROW(view->chosen, view->chosen_alloc, view->n + 1) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < view->n; i++)
        if (view->pieces[i].used && (fixed_too || !view->pieces[i].fixed))
            view->chosen[(*n)++] = &view->pieces[i];
    return 0;
}

/* Has one empty block of at least that size. */
static int make_room(struct view *view, size_t bytes)
{
    if (!view->blocks || view->blocks->next || view->blocks->size < bytes) {
        free_blocks(view);
        struct block *b = malloc(sizeof *b + bytes + (64 << 10));
        if (!b)
            return -ENOMEM;
        b->next = NULL;
        b->size = bytes + (64 << 10);
        view->blocks = b;
    }
    view->blocks->used = bytes;
    view->bytes = bytes;
    return 0;
}

int view_refresh(struct view *view)
{
    size_t kept = 0, n;

    for (size_t i = 0; i < view->n; i++)
        if (view->pieces[i].used)
            view->pieces[kept++] = view->pieces[i];
    view->n = kept;
    view->nqueue = 0;

    int r = choose(view, true, &n);
    if (r == 0)
        r = make_room(view, runs_size(view->chosen, n));
    if (r == 0)
        r = copy_runs(view, view->chosen, n, view->blocks->data);
    if (r < 0) {
        view_reset(view);
        return r;
    }
    for (size_t i = 0; i < n; i++) {
        view->pieces[i].data = view->ranges[i].data;
        view->pieces[i].ok = view->ranges[i].ok;
        view->pieces[i].used = false;
    }
    return 0;
}

static struct piece *find(struct view *view, uint64_t addr, uint32_t len)
{
    size_t behind = LOWER_BOUND(view->n, i, view->pieces[i].addr <= addr);

    for (size_t back = 1; back <= OVERLAP_MAX && back <= behind; back++) {
        struct piece *p = &view->pieces[behind - back];
        if (addr - p->addr <= p->len && len <= p->len - (addr - p->addr))
            return p;
    }
    return NULL;
}

static int queue(struct view *view, uint64_t addr, uint32_t len)
{
    if (len > VIEW_PIECE_MAX || addr + len < addr || view->bytes + len > VIEW_BYTES_MAX)
        return -E2BIG;
    if (ARRAY_GROW(view->queue, view->queue_alloc, view->nqueue + 1) < 0)
        return -ENOMEM;
    uint8_t *data = place(view, len);
    if (!data)
        return -ENOMEM;
    view->queue[view->nqueue++] = (struct piece){.addr = addr, .len = len, .data = data};
    return -EAGAIN;
}

int view_get(struct view *view, uint64_t addr, uint32_t len, const uint8_t **out)
{
    struct piece *p = find(view, addr, len);
    view->asked += 1 + len / 64;
    if (!p)
        return queue(view, addr, len);
    p->used = true;
    if (!p->ok)
        return -EFAULT;
    *out = p->data + (addr - p->addr);
    return 0;
}

int view_get_fixed(struct view *view, uint64_t addr, uint32_t len, const uint8_t **out)
{
    size_t before = view->nqueue;

    int r = view_get(view, addr, len, out);
    if (view->nqueue > before)
        view->queue[before].fixed = true;
    return r;
}

static int by_address(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    if (x->addr != y->addr)
        return x->addr < y->addr ? -1 : 1;
    return x->len < y->len ? -1 : x->len > y->len;
}

/* Drops all pieces that begin at one address but the longest: find() sees just a few of them. */
static size_t drop_duplicates(struct piece *pieces, size_t n)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        if (kept && pieces[kept - 1].addr == pieces[i].addr)
            kept--;
        pieces[kept++] = pieces[i];
    }
    return kept;
}

int view_fill(struct view *view)
{
    size_t nq = view->nqueue;

    view->nqueue = 0;
    if (!nq)
        return 0;
    if (ARRAY_GROW(view->pieces, view->alloc, view->n + nq) < 0)
        return -ENOMEM;
    if (nq > 1) {
        qsort(view->queue, nq, sizeof *view->queue, by_address);
        nq = drop_duplicates(view->queue, nq);
    }
    int r = copy_pieces(view, view->queue, nq);
    if (r < 0)
        return r;

    /* merge from the end, in place */
    size_t i = view->n, k = nq, to = view->n + nq;
    while (k) {
        if (i && view->pieces[i - 1].addr > view->queue[k - 1].addr)
            view->pieces[--to] = view->pieces[--i];
        else
            view->pieces[--to] = view->queue[--k];
    }
    view->n += nq;
    return 0;
}

void view_defer(struct view *view, bool defers) { view->defers = defers; }

bool view_is_queued(const struct view *view) { return view->nqueue; }

const uint8_t *view_read(struct view *view, uint64_t addr, uint32_t len)
{
    const uint8_t *data;

    int r = view_get(view, addr, len, &data);
    if (r == -EAGAIN && !view->defers) {
        r = view_fill(view);
        if (r == 0)
            r = view_get(view, addr, len, &data);
    }
    return r == 0 ? data : NULL;
}

bool view_read64(struct view *view, uint64_t addr, uint64_t *out)
{
    const uint8_t *data = view_read(view, addr, 8);
    if (!data)
        return false;
    *out = load64(data);
    return true;
}

int view_verify(struct view *view)
{
    size_t n;

    int r = choose(view, false, &n);
    if (r == 0)
        r = ARRAY_GROW(view->again, view->again_alloc, runs_size(view->chosen, n));
    if (r == 0)
        r = copy_runs(view, view->chosen, n, view->again);
    for (size_t i = 0; i < n && r == 0; i++) {
        const struct piece *p = view->chosen[i];
        const struct memory_range *s = &view->ranges[i];
        if (s->ok != p->ok || (p->ok && memcmp(s->data, p->data, p->len)))
            r = -EAGAIN;
    }
    return r;
}
