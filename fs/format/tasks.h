/* The text of <pid>/tasks. */
#pragma once

#include "fs/remote/tasks/tasks.h"

#define TASKS_TREE_DEPTH 64 /* tasks within tasks; deeper ones stand at the left, further below */

/* Adds the tree of all tasks, after tasks_finish(); its form is described in
 * tree/tasks.c. -ENOMEM. */
int tasks_tree_add(const struct tasks *tasks, struct text *out);
