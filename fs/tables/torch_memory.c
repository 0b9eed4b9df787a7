/* The table torch_memory: torch_tensors, added up. */
#include "agent/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/remote/torch/holders.h"
#include "fs/tables/torch_values.h"
#include "schema/schema.h"

#include <errno.h>

/* The column of an owner, and which one comes first where a storage has several. */
static const unsigned columns[TORCH_OWNERS] = {
    [OWNER_PARAMETER] = TORCH_MEMORY_PARAMETERS,   [OWNER_GRADIENT] = TORCH_MEMORY_GRADIENTS,
    [OWNER_OPTIMIZER] = TORCH_MEMORY_OPTIMIZERS,   [OWNER_BUFFER] = TORCH_MEMORY_BUFFERS,
    [OWNER_ACTIVATION] = TORCH_MEMORY_ACTIVATIONS, [OWNER_NONE] = TORCH_MEMORY_OTHERS,
};

struct piece {
    int device, index; /* as in struct tensor */
    unsigned column;
    uint64_t storage, bytes;
};

struct pieces {
    const struct stop *stop;
    struct piece *items;
    size_t n, alloc;
};

static int take(void *arg, const struct tensor *tensor, enum torch_owner owner,
                const struct torch_held *held)
{
    struct pieces *pieces = arg;

    if (ARRAY_GROW(pieces->items, pieces->alloc, pieces->n + 1) < 0)
        return -ENOMEM;
    pieces->items[pieces->n++] = (struct piece){
        .device = tensor->device,
        .index = tensor->index,
        .column = columns[owner],
        .storage = tensor->storage,
        .bytes = tensor->storage_bytes,
    };
    return stop_reason(pieces->stop);
}

static int compare(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;

    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    if (x->index != y->index)
        return x->index < y->index ? -1 : 1;
    if (x->storage != y->storage)
        return x->storage < y->storage ? -1 : 1;
    return x->column < y->column ? -1 : x->column > y->column;
}

/* Adds the row of the device of the first piece. How many pieces there are of it. */
static size_t add_device(const struct piece *pieces, size_t n, struct rows *rows)
{
    int64_t sums[TORCH_MEMORY_OTHERS + 1] = {0};
    const struct tensor tensor = {.device = pieces->device, .index = pieces->index};
    struct text device = TEXT_INIT;
    size_t i = 0;

    for (; i < n && pieces[i].device == pieces->device && pieces[i].index == pieces->index; i++) {
        const struct piece *piece = &pieces[i];
        sums[TORCH_MEMORY_TENSORS]++;
        if (!piece->storage || (i && piece[-1].storage == piece->storage))
            continue;
        sums[TORCH_MEMORY_STORAGES]++;
        sums[TORCH_MEMORY_ALLOCATED] += (int64_t)piece->bytes;
        sums[piece->column] += (int64_t)piece->bytes;
        if ((int64_t)piece->bytes > sums[TORCH_MEMORY_LARGEST])
            sums[TORCH_MEMORY_LARGEST] = (int64_t)piece->bytes;
    }
    rows_add(rows);
    tensor_add_device(&tensor, &device);
    if (device.size)
        rows_take(rows, TORCH_MEMORY_DEVICE, &device);
    for (unsigned column = TORCH_MEMORY_TENSORS; column <= TORCH_MEMORY_OTHERS; column++)
        rows_integer(rows, column, sums[column]);
    text_deinit(&device);
    return i;
}

static int fill(struct scene *scene, const struct use *use, struct rows *rows)
{
    _cleanup_(torch_models_deinit) struct torch_models models = {0};
    struct pieces pieces = {.stop = scene->stop};

    int r = torch_models_find(scene, &models);
    if (r)
        return r < 0 ? r : 0;
    r = torch_tensors_visit(scene->target, &models, take, &pieces);
    array_sort(pieces.items, pieces.n, sizeof *pieces.items, compare);
    for (size_t i = 0; r == 0 && i < pieces.n;)
        i += add_device(pieces.items + i, pieces.n - i, rows);
    free(pieces.items);
    torch_add_cut(&models, use, rows, -1, TORCH_MEMORY_DEVICE);
    return r;
}

const struct row_source torch_memory_rows = {.fill = fill};
