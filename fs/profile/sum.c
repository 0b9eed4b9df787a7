#include "fs/profile/sum.h"

#include "fs/base/array.h"

#include <errno.h>

static const struct {
    const char *name, *unit;
} modes[MODE_MODES] = {
    [MODE_CPU] = {"cpu", "ns"},        [MODE_GIL] = {"gil", "ns"},
    [MODE_NOGIL] = {"nogil", "ns"},    [MODE_OFF] = {"off", "ns"},
    [MODE_WALL] = {"wall", "ns"},      [MODE_FAULTS] = {"faults", "pages"},
    [MODE_ALLOC] = {"alloc", "bytes"}, [MODE_HEAP] = {"heap", "bytes"},
};

const char *profile_mode_name(enum profile_mode mode)
{
    return mode < MODE_MODES ? modes[mode].name : NULL;
}

enum profile_mode profile_mode_of(const char *name, size_t size)
{
    for (enum profile_mode mode = 0; mode < MODE_MODES; mode++)
        if (strlen(modes[mode].name) == size && !memcmp(modes[mode].name, name, size))
            return mode;
    return MODE_MODES;
}

const char *profile_mode_unit(enum profile_mode mode) { return modes[mode].unit; }

int sum_init(struct sum *sum, enum profile_mode mode)
{
    *sum = (struct sum){.mode = mode};
    return trie_init(&sum->trie, SUM_NODES_MAX, 0);
}

void sum_deinit(struct sum *sum)
{
    trie_deinit(&sum->trie);
    free(sum->threads);
    free(sum->cells);
    free(sum->moments);
    index_clear(&sum->by_cell);
    *sum = (struct sum){0};
}

int sum_thread(struct sum *sum, const struct sum_thread *thread, uint32_t *out)
{
    for (size_t i = sum->nthreads; i-- > 0;)
        if (sum->threads[i].pid == thread->pid && sum->threads[i].tid == thread->tid) {
            *out = (uint32_t)i;
            return 0;
        }
    if (ARRAY_GROW(sum->threads, sum->threads_alloc, sum->nthreads + 1) < 0)
        return -ENOMEM;
    sum->threads[sum->nthreads] = *thread;
    *out = (uint32_t)sum->nthreads++;
    return 0;
}

int sum_add(struct sum *sum, uint32_t thread, uint32_t node, int64_t weight, int64_t before,
            uint64_t count)
{
    uint64_t hash = hash_add(1, (uint64_t)thread << 32 | node);
    struct sum_cell *cell = NULL;
    size_t step = 0;
    uint32_t i;

    while (!cell && index_next(&sum->by_cell, hash, &step, &i))
        if (sum->cells[i].thread == thread && sum->cells[i].node == node)
            cell = &sum->cells[i];
    if (!cell) {
        if (ARRAY_GROW(sum->cells, sum->cells_alloc, sum->ncells + 1) < 0 ||
            index_add(&sum->by_cell, hash, (uint32_t)sum->ncells) < 0)
            return -ENOMEM;
        cell = &sum->cells[sum->ncells++];
        *cell = (struct sum_cell){.thread = thread, .node = node};
    }
    cell->weight += weight;
    cell->before += before;
    cell->count += count;
    return 0;
}

/* The nodes of `from` in `into`, below a root; where there are too many, what is outside of them.
 */
static int map_nodes(struct sum *into, const struct sum *from, const struct sum_role *role,
                     uint32_t *nodes)
{
    uint32_t *frames = calloc(from->trie.nframes + 1, sizeof *frames); /* the number + 1 */
    int error = frames ? 0 : -ENOMEM;

    nodes[TRIE_ROOT] = TRIE_ROOT;
    if (!error && role->root) {
        uint32_t frame;
        error = trie_frame(&into->trie, role->root, &frame);
        if (!error)
            error = trie_child(&into->trie, TRIE_ROOT, frame, &nodes[TRIE_ROOT]);
        if (error == -ENOSPC)
            error = 0;
    }
    for (size_t i = 1; !error && i < from->trie.nnodes; i++) {
        const struct trie_node *node = &from->trie.nodes[i];
        if (!frames[node->frame]) {
            struct profile_frame frame = trie_frame_of(&from->trie, node->frame);
            if (role->functions)
                frame.line = 0;
            error = trie_frame(&into->trie, &frame, &frames[node->frame]);
            if (error)
                break;
            frames[node->frame]++;
        }
        nodes[i] = nodes[node->parent];
        error = trie_child(&into->trie, nodes[node->parent], frames[node->frame] - 1, &nodes[i]);
        if (error == -ENOSPC)
            error = 0;
    }
    free(frames);
    return error;
}

int sum_merge(struct sum *into, const struct sum *from, const struct sum_role *role)
{
    uint32_t *nodes = calloc(from->trie.nnodes, sizeof *nodes);
    uint32_t *threads = calloc(from->nthreads + 1, sizeof *threads);
    double factor = role->factor > 0 ? role->factor : 1;
    int error = nodes && threads ? map_nodes(into, from, role, nodes) : -ENOMEM;

    for (size_t i = 0; !error && i < from->nthreads; i++)
        error = sum_thread(into, &from->threads[i], &threads[i]);
    for (size_t i = 0; !error && i < from->ncells; i++) {
        const struct sum_cell *cell = &from->cells[i];
        int64_t weight = (int64_t)((double)cell->weight * factor);
        error = sum_add(into, threads[cell->thread], nodes[cell->node], role->before ? 0 : weight,
                        role->before ? weight : cell->before, role->before ? 0 : cell->count);
    }
    if (!error &&
        ARRAY_GROW(into->moments, into->moments_alloc, into->nmoments + from->nmoments) < 0)
        error = -ENOMEM;
    for (size_t i = 0; !error && i < from->nmoments; i++) {
        struct sum_moment moment = from->moments[i];
        moment.thread = threads[moment.thread];
        moment.node = nodes[moment.node];
        into->moments[into->nmoments++] = moment;
    }
    if (!error && !role->before) {
        if (from->from && (!into->from || from->from < into->from))
            into->from = from->from;
        if (from->to > into->to)
            into->to = from->to;
        into->wall_zero = from->wall_zero ? from->wall_zero : into->wall_zero;
        into->period = from->period ? from->period : into->period;
    }
    into->compares |= role->before;
    free(nodes);
    free(threads);
    return error;
}

int sum_functions(const struct sum *sum, struct sum *out)
{
    int error = sum_init(out, sum->mode);

    if (!error)
        error = sum_merge(out, sum, &(struct sum_role){.functions = true});
    out->compares = sum->compares;
    if (error)
        sum_deinit(out);
    return error;
}

int sum_weights(const struct sum *sum, pid_t tid, bool before, int64_t **self, int64_t **total)
{
    *self = calloc(sum->trie.nnodes, sizeof **self);
    *total = calloc(sum->trie.nnodes, sizeof **total);
    if (!*self || !*total) {
        free(*self);
        free(*total);
        *self = *total = NULL;
        return -ENOMEM;
    }
    for (size_t i = 0; i < sum->ncells; i++) {
        const struct sum_cell *cell = &sum->cells[i];
        if (!tid || sum->threads[cell->thread].tid == tid)
            (*self)[cell->node] += before ? cell->before : cell->weight;
    }
    memcpy(*total, *self, sum->trie.nnodes * sizeof **self);
    for (size_t i = sum->trie.nnodes; --i > 0;)
        (*total)[sum->trie.nodes[i].parent] += (*total)[i];
    return 0;
}
