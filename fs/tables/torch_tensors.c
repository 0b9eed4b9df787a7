/* The table torch_tensors: each tensor that Python has, and each gradient, with whose it is. */
#include "agent/base/cleanup.h"
#include "fs/remote/torch/holders.h"
#include "fs/tables/torch_values.h"
#include "schema/schema.h"

struct reading {
    struct scene *scene;
    const struct use *use;
    struct rows *rows;
    const struct torch_models *models;
    struct text text;
};

static const struct values_columns values = {
    TORCH_TENSORS_NORM, TORCH_TENSORS_NAN, TORCH_TENSORS_INF, TORCH_TENSORS_MIN, TORCH_TENSORS_MAX,
};

static void set_holder(struct reading *r, const struct torch_held *held)
{
    if (held->as == HELD_BY_OPTIMIZER) {
        rows_text(r->rows, TORCH_TENSORS_NAME, held->name);
        torch_optimizer_name(r->models, held->of, &r->text);
    } else {
        const struct torch_module *module = &r->models->modules[held->of];
        text_printf(&r->text, "%s%s%s", module->path, *module->path ? "." : "", held->name);
        rows_take(r->rows, TORCH_TENSORS_NAME, &r->text);
        torch_model_name(r->models, module->model, &r->text);
    }
    rows_take(r->rows, TORCH_TENSORS_MODEL, &r->text);
}

static int add(void *arg, const struct tensor *tensor, enum torch_owner owner,
               const struct torch_held *held)
{
    struct reading *r = arg;
    struct rows *rows = r->rows;
    const char *holder = torch_owner_name(owner);

    if (!torch_is_wanted(r->use, TORCH_TENSORS_HOLDER, holder ? holder : ""))
        return stop_reason(r->scene->stop);
    rows_add(rows);
    if (tensor->object)
        rows_integer(rows, TORCH_TENSORS_ADDRESS, (int64_t)tensor->object);
    torch_shape_set(rows, TORCH_TENSORS_SHAPE, tensor);
    rows_integer(rows, TORCH_TENSORS_BYTES, (int64_t)(tensor->numel * tensor->type->size));
    rows_text(rows, TORCH_TENSORS_HOLDER, holder);
    if (held)
        set_holder(r, held);
    if (tensor->storage) {
        rows_integer(rows, TORCH_TENSORS_STORAGE, (int64_t)tensor->storage);
        rows_integer(rows, TORCH_TENSORS_STORAGE_BYTES, (int64_t)tensor->storage_bytes);
    }
    if (tensor->data)
        rows_integer(rows, TORCH_TENSORS_DATA, (int64_t)tensor->data);
    if (tensor->counter)
        rows_integer(rows, TORCH_TENSORS_VERSION, tensor->version);
    int e = torch_values_set(r->scene, r->use, rows, &values, tensor);
    e = e ? e : stop_reason(r->scene->stop);
    return e ? e : rows->error;
}

static int fill(struct scene *scene, const struct use *use, struct rows *rows)
{
    _cleanup_(torch_models_deinit) struct torch_models models = {0};
    struct reading reading = {scene, use, rows, &models};

    int r = torch_models_find(scene, &models);
    if (r)
        return r < 0 ? r : 0;
    r = torch_tensors_visit(scene->target, &models, add, &reading);
    torch_add_cut(&models, use, rows, TORCH_TENSORS_MODEL, TORCH_TENSORS_NAME);
    text_deinit(&reading.text);
    return r;
}

const struct row_source torch_tensors_rows = {.fill = fill};
