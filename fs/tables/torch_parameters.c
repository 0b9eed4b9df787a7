/* The table torch_parameters: of each model, what named_parameters() has. */
#include "agent/base/cleanup.h"
#include "fs/tables/torch_values.h"
#include "schema/schema.h"

#include <errno.h>

struct reading {
    struct scene *scene;
    const struct use *use;
    struct rows *rows;
    struct torch_models *models;
    struct view *view;
    struct text model, name;
};

static void reading_deinit(struct reading *r)
{
    view_free(r->view);
    text_deinit(&r->model);
    text_deinit(&r->name);
}

static const struct values_columns own = {
    TORCH_PARAMETERS_NORM, TORCH_PARAMETERS_NAN, TORCH_PARAMETERS_INF,
    TORCH_PARAMETERS_MIN,  TORCH_PARAMETERS_MAX,
};
static const struct values_columns gradients = {
    TORCH_PARAMETERS_GRAD_NORM, TORCH_PARAMETERS_GRAD_NAN, TORCH_PARAMETERS_GRAD_INF, -1, -1,
};

static void set_tensor(struct reading *r, const struct tensor *tensor, const struct tensor *shard,
                       const struct tensor *gradient)
{
    struct rows *rows = r->rows;
    int known = torch_requires_grad(r->models, tensor);

    torch_shape_set(rows, TORCH_PARAMETERS_SHAPE, tensor);
    rows_integer(rows, TORCH_PARAMETERS_BYTES, (int64_t)(shard->numel * shard->type->size));
    if (known >= 0)
        rows_integer(rows, TORCH_PARAMETERS_REQUIRES_GRAD, known);
    if (tensor->counter) {
        rows_integer(rows, TORCH_PARAMETERS_VERSION, tensor->version);
        rows_integer(rows, TORCH_PARAMETERS_COUNTER, (int64_t)tensor->counter);
    }
    if (shard->data)
        rows_integer(rows, TORCH_PARAMETERS_DATA, (int64_t)shard->data);
    if (gradient->data)
        rows_integer(rows, TORCH_PARAMETERS_GRAD_DATA, (int64_t)gradient->data);
}

static int add(struct reading *r, const struct torch_held *held)
{
    const struct torch_module *module = &r->models->modules[held->of];
    struct tensor tensor, shard, gradient, grad_shard;

    text_clear(&r->name);
    text_printf(&r->name, "%s%s%s", module->path, *module->path ? "." : "", held->name);
    text_clear(&r->model);
    torch_model_name(r->models, module->model, &r->model);
    if (r->name.error || r->model.error)
        return -ENOMEM;
    if (!torch_is_wanted(r->use, TORCH_PARAMETERS_NAME, r->name.data) ||
        !torch_is_wanted(r->use, TORCH_PARAMETERS_MODEL, r->model.data) ||
        !torch_is_wanted(r->use, TORCH_PARAMETERS_MODULE, module->path))
        return 0;
    rows_add(r->rows);
    rows_text(r->rows, TORCH_PARAMETERS_MODEL, r->model.data);
    rows_text(r->rows, TORCH_PARAMETERS_NAME, r->name.data);
    rows_text(r->rows, TORCH_PARAMETERS_MODULE, module->path);
    rows_integer(r->rows, TORCH_PARAMETERS_ADDRESS, (int64_t)held->object);
    int e = torch_tensor_read(r->scene->target, r->view, held->object, &tensor, &gradient);
    if (e < 0)
        return e == -EINVAL ? 0 : e;
    torch_shard_read(r->scene->target, r->view, &tensor, &shard);
    torch_shard_read(r->scene->target, r->view, &gradient, &grad_shard);
    set_tensor(r, &tensor, &shard, &grad_shard);
    e = torch_values_set(r->scene, r->use, r->rows, &own, &shard);
    if (e == 0 && gradient.impl)
        e = torch_values_set(r->scene, r->use, r->rows, &gradients, &grad_shard);
    return e;
}

/* Whether a parameter of the same model is an earlier one: it is one with two names. */
static bool is_again(const struct torch_models *models, size_t index)
{
    const struct torch_held *held = &models->held[index];
    uint32_t model = models->modules[held->of].model;

    for (size_t i = index; i-- && models->held[i].as != HELD_BY_OPTIMIZER &&
                           models->modules[models->held[i].of].model == model;)
        if (models->held[i].object == held->object && models->held[i].as == HELD_AS_PARAMETER)
            return true;
    return false;
}

static int fill(struct scene *scene, const struct use *use, struct rows *rows)
{
    _cleanup_(torch_models_deinit) struct torch_models models = {0};
    _cleanup_(reading_deinit) struct reading reading = {scene, use, rows, &models};

    int r = torch_models_find(scene, &models);
    if (r)
        return r < 0 ? r : 0;
    r = view_new(&scene->target->memory, &reading.view);
    for (size_t i = 0; r == 0 && i < models.nheld && !rows->error; i++)
        if (models.held[i].as == HELD_AS_PARAMETER && !is_again(&models, i))
            r = add(&reading, &models.held[i]);
    torch_add_cut(&models, use, rows, TORCH_PARAMETERS_MODEL, TORCH_PARAMETERS_NAME);
    return r;
}

const struct row_source torch_parameters_rows = {.fill = fill};
