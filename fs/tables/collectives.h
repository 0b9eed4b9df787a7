/* Rows of the table collectives that nobody has to record. */
#pragma once

#include "fs/sql/engine.h"

struct scene;

/* Adds which collectives the process is in, if it has torch.distributed: -errno, and scene->why
 * says more. */
int collectives_add(struct scene *scene, const struct use *use, struct rows *rows);
