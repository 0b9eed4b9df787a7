/* The parts of a dict that instances have without one. */
#pragma once

#include "fs/remote/objects/object.h"

/* The set values of a split table, as dict_iterate(): keys is a PyDictKeysObject, values a
 * PyDictValues (an array of pointers up to 3.10). -EFAULT. */
int split_iterate(struct view *view, const struct offsets *offsets, uint64_t keys, uint64_t values,
                  entry_visit *visit, void *arg);
