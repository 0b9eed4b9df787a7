/* The table torch_optimizers. */
#include "agent/base/cleanup.h"
#include "fs/tables/torch_values.h"
#include "schema/schema.h"

static int64_t state_bytes(struct scene *scene, struct view *view,
                           const struct torch_models *models, uint32_t optimizer)
{
    struct tensor tensor;
    uint64_t bytes = 0;

    for (size_t i = 0; i < models->nheld; i++) {
        const struct torch_held *held = &models->held[i];
        if (held->as == HELD_BY_OPTIMIZER && held->of == optimizer &&
            torch_tensor_read(scene->target, view, held->object, &tensor, NULL) == 0)
            bytes += tensor.numel * tensor.type->size;
    }
    return (int64_t)bytes;
}

static void add(const struct torch_models *models, const struct torch_param_group *group,
                int64_t bytes, struct rows *rows)
{
    const struct torch_optimizer *optimizer = &models->optimizers[group->optimizer];
    struct text name = TEXT_INIT;

    torch_optimizer_name(models, group->optimizer, &name);
    rows_add(rows);
    rows_take(rows, TORCH_OPTIMIZERS_OPTIMIZER, &name);
    rows_integer(rows, TORCH_OPTIMIZERS_PARAM_GROUP, group->number);
    rows_real(rows, TORCH_OPTIMIZERS_LR, group->lr);
    rows_real(rows, TORCH_OPTIMIZERS_WEIGHT_DECAY, group->weight_decay);
    rows_integer(rows, TORCH_OPTIMIZERS_PARAMETERS, (int64_t)group->parameters);
    rows_integer(rows, TORCH_OPTIMIZERS_STATE_BYTES, bytes);
    rows_real(rows, TORCH_OPTIMIZERS_STEP, optimizer->step);
    rows_integer(rows, TORCH_OPTIMIZERS_ADDRESS, (int64_t)optimizer->object);
    text_deinit(&name);
}

static int fill(struct scene *scene, const struct use *use, struct rows *rows)
{
    _cleanup_(torch_models_deinit) struct torch_models models = {0};
    struct view *view = NULL;

    int r = torch_models_find(scene, &models);
    if (r)
        return r < 0 ? r : 0;
    r = view_new(&scene->target->memory, &view);
    for (size_t i = 0; r == 0 && i < models.ngroups && !rows->error; i++) {
        int64_t bytes = use_wants(use, TORCH_OPTIMIZERS_STATE_BYTES)
                            ? state_bytes(scene, view, &models, models.groups[i].optimizer)
                            : 0;
        add(&models, &models.groups[i], bytes, rows);
        r = stop_reason(scene->stop);
    }
    view_free(view);
    torch_add_cut(&models, use, rows, -1, TORCH_OPTIMIZERS_OPTIMIZER);
    return r;
}

const struct row_source torch_optimizers_rows = {.fill = fill};
