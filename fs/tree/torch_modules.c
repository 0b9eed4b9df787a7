/* torch/modules: PyTorch's models as trees, the largest first, an empty line between them. A model
 * has a line of its own: `Transformer 14 modules`, and what it has itself;
 * then each module below it, as named_modules() has it: its path, its class, and what it has
 * itself: `encoder.0.up Linear weight float32[64, 32] cpu, bias float32[64] cpu`. */
#include "agent/base/cleanup.h"
#include "fs/remote/torch/models.h"
#include "fs/tree/heap.h"

#include <errno.h>

static size_t count_modules(const struct torch_models *models, size_t model)
{
    size_t n = 0;

    while (model + n < models->nmodules && models->modules[model + n].model == model)
        n++;
    return n;
}

/* What it has itself; `at` is the first of it or what comes behind. */
static void add_held(struct file_context *context, struct view *view,
                     const struct torch_models *models, size_t module, size_t *at, struct text *out)
{
    struct tensor tensor;
    const char *between = " ";

    for (; *at < models->nheld && models->held[*at].as != HELD_BY_OPTIMIZER &&
           models->held[*at].of == module;
         ++*at) {
        const struct torch_held *held = &models->held[*at];
        text_printf(out, "%s%s ", between, held->name);
        if (torch_tensor_read(context->target, view, held->object, &tensor, NULL) == 0)
            tensor_add(&tensor, out);
        else
            text_puts(out, "?");
        if (held->as == HELD_AS_BUFFER)
            text_puts(out, " (buffer)");
        between = ", ";
    }
}

static void add_models(struct file_context *context, struct view *view,
                       const struct torch_models *models, struct text *out)
{
    size_t at = 0;

    for (size_t i = 0; i < models->nmodules; i++) {
        const struct torch_module *module = &models->modules[i];
        if (module->depth) {
            text_printf(out, "%s %s", module->path, module->class);
        } else {
            size_t n = count_modules(models, i);
            text_puts(out, i ? "\n" : "");
            torch_model_name(models, (uint32_t)i, out);
            text_printf(out, " %zu module%s", n, n == 1 ? "" : "s");
        }
        add_held(context, view, models, i, &at, out);
        text_putc(out, '\n');
    }
    if (models->cut)
        text_puts(out, "# cut: there is more than can be looked at\n");
    if (models->torn)
        text_puts(out, "# torn: what changed each time it was read isn't here\n");
}

int torch_modules_render(struct file_context *context, struct text *out)
{
    _cleanup_(torch_models_deinit) struct torch_models models = {
        .unwanted = heap_unwanted,
        .unwanted_arg = context->interrupt,
    };
    struct view *view = NULL;

    int r = torch_models_read(context->target, &models, &context->why);
    if (r == 0)
        r = view_new(&context->target->memory, &view);
    if (r < 0)
        return heap_error(context, r);
    add_models(context, view, &models, out);
    view_free(view);
    return 0;
}
