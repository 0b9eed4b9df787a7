#include "fs/remote/view.h"

#include "fs/array.h"

#include <errno.h>
#include <string.h>

/* Overlapping pieces are allowed; a look-up walks back over at most this many. */
#define OVERLAP_MAX 4

struct piece {
    uint64_t addr;
    uint32_t len;
    bool ok, used;
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
    struct piece *queue;  /* asked for, not copied yet */
    size_t nqueue, queue_alloc;
    struct span *spans;   /* scratch for one read */
    size_t spans_alloc;
    uint8_t *again;       /* scratch for view_verify() */
    size_t again_alloc;
    struct block *blocks; /* where the pieces' bytes live */
    size_t bytes;
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
    free(view->spans);
    free(view->again);
    free(view);
}

void view_reset(struct view *view)
{
    free_blocks(view);
    view->n = view->nqueue = 0;
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
    if (ARRAY_GROW(view->spans, view->spans_alloc, n) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        view->spans[i] = (struct span){pieces[i].addr, pieces[i].data, pieces[i].len, false};
    int r = memory_read_spans(view->memory, view->spans, n);
    if (r < 0)
        return r;
    for (size_t i = 0; i < n; i++)
        pieces[i].ok = view->spans[i].ok;
    return 0;
}

int view_refresh(struct view *view)
{
    size_t n = 0, bytes = 0;

    for (size_t i = 0; i < view->n; i++) {
        if (!view->pieces[i].used)
            continue;
        bytes += (view->pieces[i].len + 15) & ~15ull;
        view->pieces[n++] = view->pieces[i];
    }
    view->n = n;
    view->nqueue = 0;

    /* the bytes move into one block just large enough */
    if (!view->blocks || view->blocks->next || view->blocks->size < bytes) {
        free_blocks(view);
        struct block *b = malloc(sizeof *b + bytes + (64 << 10));
        if (!b) {
            view->n = 0;
            return -ENOMEM;
        }
        b->next = NULL;
        b->size = bytes + (64 << 10);
        view->blocks = b;
    }
    view->blocks->used = 0;
    view->bytes = 0;
    for (size_t i = 0; i < n; i++) {
        view->pieces[i].data = place(view, view->pieces[i].len);
        view->pieces[i].used = false;
    }
    int r = copy_pieces(view, view->pieces, n);
    if (r < 0)
        view_reset(view);
    return r;
}

static struct piece *find(struct view *view, uint64_t addr, uint32_t len)
{
    size_t low = 0, high = view->n;

    while (low < high) { /* the first piece that begins behind addr */
        size_t mid = low + (high - low) / 2;
        if (view->pieces[mid].addr <= addr)
            low = mid + 1;
        else
            high = mid;
    }
    for (size_t back = 1; back <= OVERLAP_MAX && back <= low; back++) {
        struct piece *p = &view->pieces[low - back];
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
    if (!p)
        return queue(view, addr, len);
    p->used = true;
    if (!p->ok)
        return -EFAULT;
    *out = p->data + (addr - p->addr);
    return 0;
}

static int by_address(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    if (x->addr != y->addr)
        return x->addr < y->addr ? -1 : 1;
    return x->len < y->len ? -1 : x->len > y->len;
}

/* Of pieces that begin at one address only the longest: find() sees just a few of them. */
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

const uint8_t *view_read(struct view *view, uint64_t addr, uint32_t len)
{
    const uint8_t *data;

    int r = view_get(view, addr, len, &data);
    if (r == -EAGAIN) {
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
    size_t bytes = 0, n = 0;

    for (size_t i = 0; i < view->n; i++)
        if (view->pieces[i].used) {
            bytes += view->pieces[i].len;
            n++;
        }
    if (ARRAY_GROW(view->again, view->again_alloc, bytes) < 0 ||
        ARRAY_GROW(view->spans, view->spans_alloc, n) < 0)
        return -ENOMEM;

    uint8_t *to = view->again;
    n = 0;
    for (size_t i = 0; i < view->n; i++) {
        const struct piece *p = &view->pieces[i];
        if (!p->used)
            continue;
        view->spans[n++] = (struct span){p->addr, to, p->len, false};
        to += p->len;
    }
    int r = memory_read_spans(view->memory, view->spans, n);
    if (r < 0)
        return r;

    n = 0;
    for (size_t i = 0; i < view->n; i++) {
        const struct piece *p = &view->pieces[i];
        if (!p->used)
            continue;
        const struct span *s = &view->spans[n++];
        if (s->ok != p->ok || (p->ok && memcmp(s->data, p->data, p->len)))
            return -EAGAIN;
    }
    return 0;
}
