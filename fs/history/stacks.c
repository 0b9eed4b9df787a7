#include "fs/history/stacks.h"

#include "agent/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/profile/render.h"

#include <errno.h>
#include <string.h>

#define DEPTH_MAX 1024
#define SEVERAL "[several]" /* threads */
#define UNNAMED "[unnamed]" /* a thread that had ended before its name was read */

/* nogil is cpu without gil, and wall is cpu, off and preempted. */
static const struct part {
    const char *name;
    enum profile_mode mode; /* of which it is ... */
    const char *leaf;       /* ... what ends in this frame; NULL: all */
} parts[] = {
    {"cpu", MODE_CPU},       {"gil", MODE_GIL},
    {"off", MODE_OFF},       {"preempted", MODE_WALL, "[preempted]"},
    {"faults", MODE_FAULTS}, {"alloc", MODE_ALLOC},
    {"heap", MODE_HEAP},
};

static uint64_t size(int64_t weight) { return weight < 0 ? -(uint64_t)weight : (uint64_t)weight; }

static int by_size(const void *a, const void *b)
{
    const struct sum_cell *x = a, *y = b;

    if (size(x->weight) != size(y->weight))
        return size(x->weight) > size(y->weight) ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

/* Leaves the cells that have anything of a part; the others are gone. */
static void keep_part(struct sum *sum, const struct part *part)
{
    size_t n = 0;

    for (size_t i = 0; i < sum->ncells; i++) {
        uint32_t frame = sum->trie.nodes[sum->cells[i].node].frame;
        if (sum->cells[i].weight &&
            (!part->leaf || !strcmp(trie_frame_of(&sum->trie, frame).func, part->leaf)))
            sum->cells[n++] = sum->cells[i];
    }
    sum->ncells = n;
}

static void add_path(const struct trie *trie, uint32_t node, struct text *out)
{
    uint32_t path[DEPTH_MAX], n = 0;

    for (; node != TRIE_ROOT && n < DEPTH_MAX; node = trie->nodes[node].parent)
        path[n++] = trie->nodes[node].frame;
    while (n--) {
        const struct profile_frame frame = trie_frame_of(trie, path[n]);
        render_frame_folded(&frame, out);
        if (n)
            text_putc(out, ';');
    }
}

static int add_sum(struct history_file *file, const struct history_front *front, struct sum *sum,
                   const struct history_stack *common)
{
    _cleanup_(text_deinit) struct text path = TEXT_INIT;
    struct history_stack rest = *common;
    int r = 0;

    rest.thread = SEVERAL;
    rest.stack = "[other]";
    array_sort(sum->cells, sum->ncells, sizeof *sum->cells, by_size);
    for (size_t i = 0; i < sum->ncells && r == 0; i++) {
        const struct sum_cell *cell = &sum->cells[i];
        struct history_stack stack = *common;
        if (i >= HISTORY_STACKS_MAX) {
            rest.weight += cell->weight;
            rest.samples += (int64_t)cell->count;
            continue;
        }
        text_clear(&path);
        add_path(&sum->trie, cell->node, &path);
        stack.stack = path.data ? path.data : "";
        stack.tid = sum->threads[cell->thread].tid;
        const char *name = sum->threads[cell->thread].name;
        stack.thread = *name ? name : stack.tid ? UNNAMED : SEVERAL;
        stack.weight = cell->weight;
        stack.samples = (int64_t)cell->count;
        r = path.error ? path.error : history_file_add_stack(file, front, &stack);
    }
    return r == 0 && (rest.samples || rest.weight) ? history_file_add_stack(file, front, &rest) : r;
}

int history_add_stacks(struct history_file *file, const struct history_front *front,
                       struct store *store, uint64_t from, uint64_t to)
{
    int r = 0;

    for (size_t i = 0; i < ARRAY_SIZE(parts) && r == 0; i++) {
        const struct store_view view = {.mode = parts[i].mode, .from = from, .to = to};
        struct sum sum;
        r = sum_init(&sum, parts[i].mode);
        if (r < 0)
            return r;
        r = store_sum(store, &view, &sum);
        keep_part(&sum, &parts[i]);
        const struct history_stack common = {
            .ts = (double)(from + sum.wall_zero) * 1e-9,
            .seconds = (double)(to - from) * 1e-9,
            .mode = parts[i].name,
        };
        if (r == 0)
            r = add_sum(file, front, &sum, &common);
        sum_deinit(&sum);
    }
    return r;
}
