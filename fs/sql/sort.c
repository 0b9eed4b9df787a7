/* Keys become numbers that compare as they do; texts, their ranks among the different ones. Rows
 * are sorted by the last key first, each time by the bytes of its numbers (radix sort), those in
 * which all are the same left out. */
#include "fs/sql/sort.h"

#include "fs/sql/engine.h"

#include <errno.h>
#include <math.h>
#include <sqlite3.h>
#include <string.h>

#define RADIX 256
#define COMPARISONS_BETWEEN_LOOKS 4096

struct keyed {
    uint64_t key;
    uint32_t row;
};

/* ---- ranks of texts ---- */

static int compare_texts(const struct texts_item *x, const struct texts_item *y)
{
    int c = memcmp(x->bytes, y->bytes, x->size < y->size ? x->size : y->size);

    return c ? c : (x->size > y->size) - (x->size < y->size);
}

struct ranking {
    const struct texts *texts;
    const struct stop *stop;
    unsigned looks;
    int error;
};

/* The first bytes of a text, which decide mostly. */
static uint64_t beginning(const struct texts_item *item)
{
    unsigned char bytes[8] = {0};
    uint64_t key = 0;

    memcpy(bytes, item->bytes, item->size < 8 ? item->size : 8);
    for (unsigned i = 0; i < 8; i++)
        key = key << 8 | bytes[i];
    return key;
}

static bool is_after(struct ranking *r, const struct keyed *a, const struct keyed *b)
{
    if (++r->looks % COMPARISONS_BETWEEN_LOOKS == 0 && r->error == 0)
        r->error = stop_reason(r->stop);
    if (a->key != b->key)
        return a->key > b->key;
    return compare_texts(texts_get(r->texts, a->row), texts_get(r->texts, b->row)) > 0;
}

/* Merges from[low, middle) and from[middle, high). */
static void merge(struct ranking *r, const struct keyed *from, struct keyed *to, size_t low,
                  size_t middle, size_t high)
{
    size_t i = low, k = middle;

    for (size_t at = low; at < high; at++)
        to[at] = k == high || (i < middle && !is_after(r, &from[i], &from[k])) ? from[i++]
                                                                               : from[k++];
}

/* Sorts by merging longer and longer runs; the result is in `items` or in `other`. */
static struct keyed *sort_texts(struct ranking *r, struct keyed *items, struct keyed *other,
                                size_t n)
{
    for (size_t run = 1; run < n && r->error == 0; run *= 2) {
        for (size_t low = 0; low < n; low += 2 * run) {
            size_t middle = low + run < n ? low + run : n;
            merge(r, items, other, low, middle, middle + run < n ? middle + run : n);
        }
        struct keyed *sorted = other;
        other = items;
        items = sorted;
    }
    return items;
}

/* ranks[number], from 1. */
static int rank_texts(const struct texts *texts, const struct stop *stop, uint32_t *ranks)
{
    struct ranking r = {.texts = texts, .stop = stop};

    struct keyed *items = sqlite3_malloc64((2 * texts->n + 1) * sizeof *items);
    if (!items)
        return -ENOMEM;
    for (uint32_t i = 0; i < texts->n; i++)
        items[i] = (struct keyed){beginning(&texts->items[i]), i + 1};
    struct keyed *sorted = sort_texts(&r, items, items + texts->n, texts->n);
    ranks[0] = 0;
    for (uint32_t i = 0; i < texts->n; i++)
        ranks[sorted[i].row] = i + 1;
    sqlite3_free(items);
    return r.error;
}

/* ---- sorting rows ---- */

static uint64_t real_key(uint64_t word)
{
    const uint64_t sign = (uint64_t)1 << 63;
    double value;

    memcpy(&value, &word, sizeof value);
    if (isnan(value))
        return 0;
    if (value == 0)
        return sign; /* -0.0 is the same */
    return word & sign ? ~word : word | sign;
}

/* A number that compares as the value does. ranks: of texts. */
static uint64_t key_of(enum column_type type, uint64_t word, const uint32_t *ranks)
{
    switch (type) {
    case COLUMN_INTEGER: return word ^ (uint64_t)1 << 63;
    case COLUMN_REAL: return real_key(word);
    case COLUMN_TEXT: break;
    }
    return ranks[word];
}

static int compare_words(const struct rows *rows, unsigned slot, uint64_t a, uint64_t b)
{
    enum column_type type = rows->types[slot];

    if (a == b)
        return 0;
    if (type == COLUMN_TEXT)
        return !a   ? -1
               : !b ? 1
                    : compare_texts(texts_get(&rows->texts[slot], (uint32_t)a),
                                    texts_get(&rows->texts[slot], (uint32_t)b));
    uint64_t x = key_of(type, a, NULL), y = key_of(type, b, NULL);
    return (x > y) - (x < y);
}

static bool is_sorted(const struct rows *rows, const struct sort *order)
{
    for (size_t row = 1; row < rows->n; row++)
        for (unsigned i = 0; i < order->n; i++) {
            const struct sort_key *key = &order->keys[i];
            int c = compare_words(rows, key->slot, rows_word(rows, row - 1, key->slot),
                                  rows_word(rows, row, key->slot));
            if (c && (c > 0) != key->descending)
                return false;
            if (c)
                break;
        }
    return true;
}

static void scatter(const struct keyed *from, struct keyed *to, size_t n, unsigned shift)
{
    size_t counts[RADIX] = {0}, at = 0;

    for (size_t i = 0; i < n; i++)
        counts[from[i].key >> shift & (RADIX - 1)]++;
    for (unsigned i = 0; i < RADIX; i++) {
        size_t count = counts[i];
        counts[i] = at;
        at += count;
    }
    for (size_t i = 0; i < n; i++)
        to[counts[from[i].key >> shift & (RADIX - 1)]++] = from[i];
}

/* The result is in `items` or in `other`. */
static struct keyed *sort_rows(struct keyed *items, struct keyed *other, size_t n)
{
    uint64_t differ = 0;

    for (size_t i = 1; i < n; i++)
        differ |= items[i].key ^ items[0].key;
    for (unsigned shift = 0; shift < 64; shift += 8) {
        if (!(differ >> shift & (RADIX - 1)))
            continue;
        scatter(items, other, n, shift);
        struct keyed *sorted = other;
        other = items;
        items = sorted;
    }
    return items;
}

static int sort_by(const struct rows *rows, const struct sort_key *key, const struct stop *stop,
                   struct keyed **items, struct keyed **other)
{
    enum column_type type = rows->types[key->slot];
    uint64_t flip = key->descending ? UINT64_MAX : 0;
    uint32_t *ranks = NULL;

    if (type == COLUMN_TEXT) {
        const struct texts *texts = &rows->texts[key->slot];
        ranks = sqlite3_malloc64((texts->n + 1) * sizeof *ranks);
        int r = ranks ? rank_texts(texts, stop, ranks) : -ENOMEM;
        if (r < 0) {
            sqlite3_free(ranks);
            return r;
        }
    }
    for (size_t i = 0; i < rows->n; i++) {
        struct keyed *item = &(*items)[i];
        item->key = flip ^ key_of(type, rows_word(rows, item->row, key->slot), ranks);
    }
    sqlite3_free(ranks);
    struct keyed *sorted = sort_rows(*items, *other, rows->n);
    if (sorted == *other) {
        *other = *items;
        *items = sorted;
    }
    return 0;
}

static int sort(const struct rows *rows, const struct stop *stop, struct sort *order)
{
    struct keyed *both = sqlite3_malloc64(2 * rows->n * sizeof *both);
    struct keyed *items = both, *other = both + rows->n;
    int r = both ? 0 : -ENOMEM;

    for (size_t i = 0; r == 0 && i < rows->n; i++)
        items[i].row = (uint32_t)i;
    for (unsigned i = order->n; i-- > 0 && r == 0;)
        r = sort_by(rows, &order->keys[i], stop, &items, &other);
    if (r == 0 && !(order->rows = sqlite3_malloc64(rows->n * sizeof *order->rows)))
        r = -ENOMEM;
    for (size_t i = 0; r == 0 && i < rows->n; i++)
        order->rows[i] = items[i].row;
    sqlite3_free(both);
    return r;
}

int sort_new(const struct rows *rows, const struct sort_key *keys, unsigned n,
             const struct stop *stop, struct sort **out)
{
    struct sort *order = sqlite3_malloc64(sizeof *order);
    if (!order)
        return -ENOMEM;
    *order = (struct sort){.n = n};
    memcpy(order->keys, keys, n * sizeof *keys);
    int r = is_sorted(rows, order) ? 0 : sort(rows, stop, order);
    if (r < 0) {
        sort_free(order);
        return r;
    }
    *out = order;
    return 0;
}

void sort_free(struct sort *order)
{
    if (!order)
        return;
    sqlite3_free(order->rows);
    sqlite3_free(order);
}
