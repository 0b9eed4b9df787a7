/* The lines at the beginning of what is written to eval that are no Python: `on 0,2-3`, for these
 * ranks, and `-- strict`. */
#pragma once

#include "fs/base/ranges.h"
#include "fs/tree/file.h"

struct eval_head {
    struct ranges ranges;
    bool has_ranks, strict;
    size_t size; /* of its lines */
};

/* Reads them; *out is zero. 0; 1: the last line isn't whole, and what it will be one can't know;
 * -EINVAL: context->why says what belongs there. */
int eval_head_read(struct file_context *context, const struct input *input, struct eval_head *out);
