#include "fs/tables/torch_values.h"

#include <errno.h>

static int unwanted(const void *arg) { return stop_reason(arg); }

static bool wants(const struct use *use, int column)
{
    return column >= 0 && use_wants(use, (unsigned)column);
}

int torch_values_set(struct scene *scene, const struct use *use, struct rows *rows,
                     const struct values_columns *c, const struct tensor *tensor)
{
    struct tensor_values values;

    if (!wants(use, c->norm) && !wants(use, c->nan) && !wants(use, c->inf) && !wants(use, c->min) &&
        !wants(use, c->max))
        return 0;
    int r = tensor_values_read(&scene->target->memory, tensor, unwanted, scene->stop, &values);
    if (r == -EOPNOTSUPP || r == -EFAULT)
        return 0;
    if (r < 0)
        return r;
    if (c->norm >= 0)
        rows_real(rows, (unsigned)c->norm, values.norm);
    if (c->nan >= 0)
        rows_integer(rows, (unsigned)c->nan, (int64_t)values.nan);
    if (c->inf >= 0)
        rows_integer(rows, (unsigned)c->inf, (int64_t)values.inf);
    if (c->min >= 0)
        rows_real(rows, (unsigned)c->min, values.min);
    if (c->max >= 0)
        rows_real(rows, (unsigned)c->max, values.max);
    return 0;
}

void torch_shape_set(struct rows *rows, unsigned shape, const struct tensor *tensor)
{
    struct text text = TEXT_INIT;

    tensor_add_shape(tensor, &text);
    rows_take(rows, shape, &text);
    rows_text(rows, shape + 1, tensor->type->name);
    tensor_add_device(tensor, &text);
    if (text.size)
        rows_take(rows, shape + 2, &text);
    text_deinit(&text);
}

int torch_models_find(struct scene *scene, struct torch_models *models)
{
    models->unwanted = unwanted;
    models->unwanted_arg = scene->stop;
    int r = torch_models_read(scene->target, models, scene->why);
    return r == -ENOENT ? 1 : r;
}

bool torch_is_wanted(const struct use *use, unsigned column, const char *text)
{
    const char *equal = use->bounds[column].equal;

    return !*equal || !strcmp(equal, text);
}

static void add_row(const struct use *use, struct rows *rows, int model, unsigned column,
                    const char *text)
{
    rows_add(rows);
    rows_text(rows, column, text);
    if (model >= 0 && *use->bounds[model].equal)
        rows_text(rows, (unsigned)model, use->bounds[model].equal);
}

void torch_add_cut(const struct torch_models *models, const struct use *use, struct rows *rows,
                   int model, unsigned column)
{
    if (models->cut)
        add_row(use, rows, model, column, "[cut: there is more than can be looked at]");
    if (models->torn)
        add_row(use, rows, model, column, "[torn: what changed each time it was read isn't here]");
}
