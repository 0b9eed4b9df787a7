/* The formats that people read, and that grep and awk do. */
#include "fs/profile/render.h"

#include "agent/base/cleanup.h"
#include "fs/base/array.h"

#include <errno.h>
#include <string.h>
#include <inttypes.h>

static void add_element(struct text *out, const char *s)
{
    for (; *s; s++)
        text_putc(out, *s == ';' ? ':' : *s);
}

void render_frame_folded(const struct profile_frame *frame, struct text *out)
{
    add_element(out, frame->func);
    if (frame->kind == PROFILE_NATIVE) {
        text_puts(out, " [native]");
    } else if (frame->kind == PROFILE_PYTHON && *frame->file) {
        text_puts(out, " (");
        add_element(out, frame->file);
        if (frame->line)
            text_printf(out, ":%d", frame->line);
        text_putc(out, ')');
    }
}

void render_weight(enum profile_mode mode, int64_t weight, struct text *out)
{
    if (!strcmp(profile_mode_unit(mode), "ns"))
        text_printf(out, "%.6f", (double)weight * 1e-9);
    else
        text_printf(out, "%" PRId64, weight);
}

/* ---- folded ---- */

struct line {
    uint32_t node;
    int64_t now, before;
};

static uint64_t change(const struct line *line)
{
    int64_t change = line->now - line->before;

    return change < 0 ? -(uint64_t)change : (uint64_t)change;
}

static int by_change(const void *a, const void *b)
{
    const struct line *x = a, *y = b;
    uint64_t m = change(x), n = change(y);

    if (m != n)
        return m > n ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

static void add_stack(const struct trie *trie, uint32_t node, struct text *out)
{
    uint32_t path[1 << 11], n = 0;

    for (; node && n < ARRAY_SIZE(path); node = trie->nodes[node].parent)
        path[n++] = node;
    while (n) {
        struct profile_frame frame = trie_frame_of(trie, trie->nodes[path[--n]].frame);
        render_frame_folded(&frame, out);
        if (n)
            text_putc(out, ';');
    }
}

static int64_t rounded(int64_t weight, int64_t unit)
{
    return (weight + (weight < 0 ? -unit : unit) / 2) / unit;
}

/* Of a difference both, as difffolded.pl writes them: flamegraph.pl draws that in two colours. */
int render_folded(const struct sum *sum, struct text *out)
{
    int64_t unit = !strcmp(profile_mode_unit(sum->mode), "ns") ? 1000 : 1;
    _cleanup_free_ struct line *lines = calloc(sum->trie.nnodes, sizeof *lines);
    size_t n = 0;

    if (!lines)
        return -ENOMEM;
    for (size_t i = 0; i < sum->ncells; i++) {
        const struct sum_cell *cell = &sum->cells[i];
        lines[cell->node].now += cell->weight;
        lines[cell->node].before += cell->before;
    }
    for (uint32_t node = 1; node < sum->trie.nnodes; node++) { /* n stays behind node */
        struct line line = {node, rounded(lines[node].now, unit),
                            rounded(lines[node].before, unit)};
        if (line.now || line.before)
            lines[n++] = line;
    }
    if (n)
        array_sort(lines, n, sizeof *lines, by_change);
    for (size_t i = 0; i < n && !out->cut; i++) {
        add_stack(&sum->trie, lines[i].node, out);
        if (sum->compares)
            text_printf(out, " %" PRId64, lines[i].before);
        text_printf(out, " %" PRId64 "\n", lines[i].now);
    }
    return 0;
}

/* ---- functions and lines ---- */

int64_t sum_whole(const struct sum *sum)
{
    int64_t whole = 0;

    for (size_t i = 0; i < sum->ncells; i++)
        whole += sum->cells[i].weight - sum->cells[i].before;
    return whole;
}

static int64_t size(int64_t weight) { return weight < 0 ? -weight : weight; }

static int by_self(const void *a, const void *b)
{
    const struct place_sum *x = a, *y = b;

    if (x->self != y->self && size(x->self) != size(y->self))
        return size(x->self) > size(y->self) ? -1 : 1;
    if (x->total != y->total && size(x->total) != size(y->total))
        return size(x->total) > size(y->total) ? -1 : 1;
    int order = strcmp(x->frame.file, y->frame.file);
    if (!order)
        order = x->frame.line - y->frame.line;
    return order ? order : strcmp(x->frame.func, y->frame.func);
}

/* Gives each frame the number of its place, and the places their frames. A source line belongs to
 * the file, whatever function it is in. */
static int number_places(const struct sum *sum, bool by_line, struct trie *places, uint32_t *of)
{
    for (uint32_t i = 0; i < sum->trie.nframes; i++) {
        struct profile_frame frame = trie_frame_of(&sum->trie, i);
        if (by_line && frame.kind == PROFILE_PYTHON) {
            frame.func = "";
            frame.first_line = 0;
        } else {
            frame.line = 0;
        }
        if (trie_frame(places, &frame, &of[i]) < 0)
            return -ENOMEM;
    }
    return 0;
}

/* A frame of the sum that has the place: its names live as long as the sum. */
static void name_places(const struct sum *sum, bool by_line, const uint32_t *of,
                        struct place_sum *sums)
{
    for (uint32_t i = 0; i < sum->trie.nframes; i++) {
        struct profile_frame *frame = &sums[of[i]].frame;
        *frame = trie_frame_of(&sum->trie, i);
        if (!by_line || frame->kind != PROFILE_PYTHON)
            frame->line = 0;
    }
}

int sum_places(const struct sum *sum, bool by_line, struct place_sum **out, size_t *n)
{
    const struct trie *trie = &sum->trie;
    struct trie places;

    if (trie_init(&places, 0, 0) < 0)
        return -ENOMEM;
    _cleanup_free_ uint32_t *of = calloc(trie->nframes + 1, sizeof *of);
    _cleanup_free_ int64_t *weights = calloc(trie->nnodes, sizeof *weights);
    int error = of && weights ? number_places(sum, by_line, &places, of) : -ENOMEM;
    *n = places.nframes;
    trie_deinit(&places);
    struct place_sum *sums = error ? NULL : calloc(*n + 1, sizeof *sums);
    _cleanup_free_ uint32_t *seen = error ? NULL : calloc(*n + 1, sizeof *seen);
    if (!sums || !seen) {
        free(sums);
        return -ENOMEM;
    }
    name_places(sum, by_line, of, sums);
    for (size_t i = 0; i < sum->ncells; i++)
        weights[sum->cells[i].node] += sum->cells[i].weight - sum->cells[i].before;
    for (uint32_t node = 1; node < trie->nnodes; node++) {
        if (!weights[node])
            continue;
        sums[of[trie->nodes[node].frame]].self += weights[node];
        for (uint32_t at = node; at; at = trie->nodes[at].parent) {
            uint32_t place = of[trie->nodes[at].frame];
            if (seen[place] != node)
                sums[place].total += weights[node];
            seen[place] = node;
        }
    }
    if (*n)
        array_sort(sums, *n, sizeof *sums, by_self);
    *out = sums;
    return 0;
}

static double percent(int64_t part, int64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

/* The weight that shares are of: of a difference, what there was before. */
static int64_t reference(const struct sum *sum)
{
    int64_t whole = 0;

    for (size_t i = 0; i < sum->ncells; i++)
        whole += sum->compares ? sum->cells[i].before : sum->cells[i].weight;
    return whole;
}

int render_top(const struct sum *sum, struct text *out)
{
    int64_t whole = reference(sum);
    struct place_sum *places;
    size_t n;

    int error = sum_places(sum, false, &places, &n);
    if (error)
        return error;
    text_puts(out, "self% total% self total function place\n");
    for (size_t i = 0; i < n && !out->cut; i++) {
        const struct place_sum *place = &places[i];
        if (!place->self && !place->total)
            continue;
        text_printf(out, "%.2f %.2f ", percent(place->self, whole), percent(place->total, whole));
        render_weight(sum->mode, place->self, out);
        text_putc(out, ' ');
        render_weight(sum->mode, place->total, out);
        text_printf(out, " %s", place->frame.func);
        if (*place->frame.file)
            text_printf(out, " %s", place->frame.file);
        if (place->frame.first_line)
            text_printf(out, ":%d", place->frame.first_line);
        text_putc(out, '\n');
    }
    free(places);
    return 0;
}

int render_lines(const struct sum *sum, struct text *out)
{
    struct place_sum *places;
    size_t n;

    int error = sum_places(sum, true, &places, &n);
    if (error)
        return error;
    for (size_t i = 0; i < n && !out->cut; i++) {
        const struct place_sum *place = &places[i];
        if (place->frame.kind != PROFILE_PYTHON || !*place->frame.file ||
            (!place->self && !place->total))
            continue;
        text_printf(out, "%s:%d ", place->frame.file, place->frame.line);
        render_weight(sum->mode, place->self, out);
        text_putc(out, ' ');
        render_weight(sum->mode, place->total, out);
        text_putc(out, '\n');
    }
    free(places);
    return 0;
}
