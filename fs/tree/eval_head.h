/* The lines at the beginning of what is written to eval that are no Python: `-- format: json`, and
 * where it isn't a thread's or a frame's `on 0,2-3`, for these ranks, and `-- strict`. */
#pragma once

#include "fs/base/ranges.h"
#include "fs/tree/file.h"

struct eval_head {
    struct ranges ranges;
    bool has_ranks, strict, as_json;
    size_t size;  /* of its lines */
    size_t stays; /* of these, up to where they begin to repeat what was said */
};

/* Reads them; *out is zero. 0; 1: the last line isn't whole, and what it will be one can't know;
 * -EINVAL: context->why says what belongs there. */
int eval_head_read(struct file_context *context, const struct input *input, struct eval_head *out);

/* eval_run() of what comes behind a head. */
int eval_run_behind(struct file_context *context, const struct input *input,
                    const struct eval_head *head, struct text *said, struct outcome *outcome);
