/* What the tables of PyTorch's tensors have in common. */
#pragma once

#include "fs/remote/torch/models.h"
#include "fs/remote/torch/values.h"
#include "fs/tables/scene.h"

/* Columns, or -1: the table has none. */
struct values_columns {
    int norm, nan, inf, min, max;
};

/* Sets those of them that the statement uses to what a tensor's values come to; NULL where they
 * can't be read. 0; -errno ends the statement. */
int torch_values_set(struct scene *scene, const struct use *use, struct rows *rows,
                     const struct values_columns *columns, const struct tensor *tensor);
/* Sets three columns that stand side by side: shape, dtype, device. */
void torch_shape_set(struct rows *rows, unsigned shape, const struct tensor *tensor);
/* Reads what there is. 1: nothing, for there is no PyTorch; 0 or -errno. The caller owns *models.
 */
int torch_models_find(struct scene *scene, struct torch_models *models);
/* Whether a row with this text in a column may be wanted. */
bool torch_is_wanted(const struct use *use, unsigned column, const char *text);
/* Last rows that say so, in this column, if not all was looked at, or could be read. model: a
 * column that has the name of a model, or -1; where one model is wanted, it is said of that one. */
void torch_add_cut(const struct torch_models *models, const struct use *use, struct rows *rows,
                   int model, unsigned column);
